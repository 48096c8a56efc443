package share

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// clientPrefix begins the client id of every member.
const clientPrefix = "outbox-relay"

// endedInterval is the interval between two searches for members whose process has ended.
// The first comes when this member is about to join: a coordinator lets the first member of an
// empty group wait for others (group.initial.rebalance.delay.ms, 3 s).
const endedInterval = 200 * time.Millisecond

// process identifies a process for as long as its host runs.
type process struct {
	// host identifies the running kernel, the namespace of process ids and the name of the
	// host, so that a process id means the same process.
	host string
	pid  int
	// start is the start of the process in clock ticks since the host's; an id is used again.
	start uint64
}

// thisProcess returns this process, false on systems without procfs.
func thisProcess() (process, bool) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return process{}, false
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return process{}, false
	}
	name, err := os.Hostname()
	if err != nil {
		return process{}, false
	}
	start, err := startTime(os.Getpid())
	if err != nil {
		return process{}, false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s", boot, namespace, name))
	return process{hex.EncodeToString(sum[:8]), os.Getpid(), start}, true
}

func startTime(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	return stat.Starttime, err
}

// clientID returns the client id of the process's members.
func (p process) clientID() string {
	return fmt.Sprintf("%s-%s-%d-%d", clientPrefix, p.host, p.pid, p.start)
}

// parseClientID returns the process of a member, false if its client id contains none.
func parseClientID(id string) (p process, ok bool) {
	rest, ok := strings.CutPrefix(id, clientPrefix+"-")
	parts := strings.Split(rest, "-")
	if !ok || len(parts) != 3 {
		return process{}, false
	}
	pid, err := strconv.Atoi(parts[1])
	start, err2 := strconv.ParseUint(parts[2], 10, 64)
	return process{parts[0], pid, start}, err == nil && err2 == nil && pid > 0
}

// hasEnded reports that a process of this host has ended. If in doubt it has not.
func (p process) hasEnded() bool {
	other, err := os.FindProcess(p.pid)
	if err != nil {
		return false
	}
	defer other.Release() //nolint:errcheck // it has no state
	if err := other.Signal(syscall.Signal(0)); err != nil {
		return errors.Is(err, os.ErrProcessDone)
	}
	start, err := startTime(p.pid)
	return err == nil && start != p.start
}

// removeEnded removes members from the group whose process ran on this host and has ended,
// until this member has joined or the broker must have removed them itself. So a relay that
// was killed and is started again need not wait for the session timeout of its predecessor.
// An ended process renews no lease and writes nothing more.
func (m *Member) removeEnded(ctx context.Context) {
	if m.cfg.process == (process{}) {
		return
	}
	tick := time.NewTicker(endedInterval)
	defer tick.Stop()
	for end := time.Now().Add(m.cfg.SessionTimeout + m.cfg.RebalanceTimeout); time.Now().Before(end); {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if _, generation := m.client.GroupMetadata(); generation >= 0 {
			return
		}
		if err := m.removeOnce(ctx); err != nil && ctx.Err() == nil {
			m.log.Debug("failed to look for members of ended processes; the session timeout removes them", "err", err)
		}
	}
}

// removeOnce searches the group once.
func (m *Member) removeOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, m.cfg.patience())
	defer cancel()
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{m.cfg.Name}
	resp, err := req.RequestWith(ctx, m.client)
	if err != nil {
		return fmt.Errorf("describe group %s: %w", m.cfg.Name, err)
	}
	for _, g := range resp.Groups {
		for i := range g.Members {
			member := &g.Members[i]
			p, ok := parseClientID(member.ClientID)
			if !ok || p.host != m.cfg.process.host || p == m.cfg.process || !m.cfg.ended(p) {
				continue
			}
			if err := m.remove(ctx, member.MemberID); err != nil {
				return err
			}
			m.log.Info("removed the member of an ended process of this host from the group", "pid", p.pid)
		}
	}
	return nil
}

// remove removes a member from the group.
func (m *Member) remove(ctx context.Context, id string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = m.cfg.Name, id // before version 3
	member := kmsg.NewLeaveGroupRequestMember()
	member.MemberID = id
	req.Members = append(req.Members, member)
	resp, err := req.RequestWith(ctx, m.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
		for i := range resp.Members {
			err = cmp.Or(err, kerr.ErrorForCode(resp.Members[i].ErrorCode))
		}
	}
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) { // the broker was faster
		return fmt.Errorf("remove member %s from group %s: %w", id, m.cfg.Name, err)
	}
	return nil
}
