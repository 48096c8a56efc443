package golden

import "testing"

func TestFindRing(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][2]int{
		"F": {256, 1}, "F.2shards": {256, 2}, "F.1token": {1, 1}, "F.4tokens": {4, 1},
		"reader-run": {4, 1}, "reader-2shards": {4, 2}, "reader-switch": {4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var r *Ring
			var err error
			if name[0] == 'F' {
				r, err = RingOfCases(load(t, name))
			} else {
				var frames []*Frame
				if frames, err = LoadFrames(dir, name); err == nil {
					r, err = RingOfFrames(frames)
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Tokens) != want[0] || len(r.Streams[0]) != want[1] || r.HostID == [16]byte{} {
				t.Errorf("%d tokens with %d streams of host %x, want %v", len(r.Tokens), len(r.Streams[0]), r.HostID, want)
			}
			for i, token := range r.Tokens {
				for _, s := range r.Streams[i] {
					// The version is 1, and the vnode's index precedes it.
					low := be64(s[8:])
					if len(s) != 16 || low&0xf != 1 || int(low>>4&(1<<22-1)) != i {
						t.Errorf("token %d (number %d) has stream %x", token, i, s)
					}
				}
			}
		})
	}
}
