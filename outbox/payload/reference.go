package payload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Header is the record header with the reference of a payload: the attribute dataref
// of CloudEvents. The record's value is then empty.
const Header = "ce_dataref"

// Prefix is the first part of every reference, and of no other object of a bucket that
// payloads share with others.
const Prefix = "payloads/"

// MaxBytes is the maximum size of a stored payload: consumers read it into memory.
const MaxBytes = 64 << 20

var (
	// ErrNotFound is in the chain of the error for a payload that the store lacks.
	ErrNotFound = errors.New("no such payload")
	// ErrDamaged is in the chain of the error for a payload whose size or SHA-256 is
	// not that of its reference.
	ErrDamaged = errors.New("payload does not match its reference")
)

// Store stores payloads. Implementations are safe for concurrent use.
type Store interface {
	// Put stores content under a key of Key. After nil it is durable. A repetition
	// with the same key has the same content and succeeds.
	Put(ctx context.Context, key string, content []byte) error
	// Get returns the content of a key. The error has ErrNotFound in its chain if
	// there is none. Get does not have to verify the content, but may stop reading
	// beyond Reference.Bytes.
	Get(ctx context.Context, key string) ([]byte, error)
}

// Reference is a parsed key.
type Reference struct {
	// Day is the first day, in UTC, on which the event may be published; a lifetime
	// begins on it.
	Day time.Time
	// Bytes is the size of the payload.
	Bytes int64
	// SHA256 is the digest of the payload.
	SHA256 [sha256.Size]byte
}

const dayFormat = "2006-01-02"

// Key returns the key of a payload: payloads/YYYY-MM-DD/SIZE-SHA256, with the day of
// the time in UTC, the size in bytes in decimal, and the digest in lower-case
// hexadecimal. Equal payloads of one day have one key.
func Key(content []byte, day time.Time) string {
	sum := sha256.Sum256(content)
	return Prefix + day.UTC().Format(dayFormat) + "/" + strconv.Itoa(len(content)) + "-" + hex.EncodeToString(sum[:])
}

// Parse parses a key. Only the exact form of Key is valid, so that a key cannot name
// anything else in a bucket or a file system.
func Parse(key string) (Reference, error) {
	bad := func(problem string) (Reference, error) {
		return Reference{}, fmt.Errorf("payload reference %q %s: want %sYYYY-MM-DD/SIZE-SHA256", key[:min(len(key), 128)], problem, Prefix)
	}
	rest, ok := strings.CutPrefix(key, Prefix)
	day, rest, cut := strings.Cut(rest, "/")
	if !ok || !cut {
		return bad("has no day")
	}
	var r Reference
	var err error
	if r.Day, err = time.Parse(dayFormat, day); err != nil {
		return bad("has no day")
	}
	size, digest, _ := strings.Cut(rest, "-")
	if r.Bytes, err = strconv.ParseInt(size, 10, 64); err != nil || r.Bytes < 0 || strconv.FormatInt(r.Bytes, 10) != size {
		return bad("has no size")
	}
	if r.Bytes > MaxBytes {
		return bad(fmt.Sprintf("is of more than %d bytes", MaxBytes))
	}
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) != len(r.SHA256) || strings.ToLower(digest) != digest {
		return bad("has no SHA-256")
	}
	copy(r.SHA256[:], sum)
	return r, nil
}

// Load returns the payload of a reference once its size and SHA-256 are verified.
// Errors name the reference. One with ErrNotFound or ErrDamaged in its chain does not end
// by a repetition.
func Load(ctx context.Context, s Store, key string) ([]byte, error) {
	r, err := Parse(key)
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, fmt.Errorf("read payload %s: the store is nil: pass one, such as a Folder", key)
	}
	content, err := s.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("read payload %s: %w", key, err)
	}
	if int64(len(content)) != r.Bytes || sha256.Sum256(content) != r.SHA256 {
		return nil, fmt.Errorf("read payload %s: the store has %d bytes with SHA-256 %x: %w", key, len(content), sha256.Sum256(content), ErrDamaged)
	}
	return content, nil
}

// Resolve returns the payload of a record: the verified one that its headers refer to,
// or its value if they have no reference. It returns the errors of Load.
func Resolve(ctx context.Context, s Store, headers map[string]string, value []byte) ([]byte, error) {
	key, ok := headers[Header]
	if !ok {
		return value, nil
	}
	return Load(ctx, s, key)
}
