package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Token is a bearer token as the configuration has it: the token itself is known
// to its owner alone.
type Token struct {
	// Name is who uses it: 1 to 64 letters, digits and ._-
	Name string
	// Role is what the owner may do.
	Role Role
	// Hash is "sha256:" and the token's SHA-256 in hex, as NewToken gives it.
	//
	// A plain hash is right here, where it would be wrong for a password: a token
	// is 256 random bits, so nobody finds it by trying, however fast the hash is. A
	// slow one would only let strangers keep the processor and the memory busy.
	Hash string
}

// ParseToken reads a token as settings have it: NAME:ROLE:HASH. New judges the parts.
func ParseToken(s string) (Token, error) {
	name, rest, ok := strings.Cut(strings.TrimSpace(s), ":")
	role, hash, ok2 := strings.Cut(rest, ":")
	switch {
	case made(s):
		return Token{}, errors.New("this is the token itself, which the configuration must not have; write what was printed below it")
	case !ok || !ok2:
		return Token{}, errors.New("write NAME:ROLE:sha256:HEX, as it was printed with the token")
	}
	return Token{Name: name, Role: Role(role), Hash: hash}, nil
}

// String is the token as settings have it.
func (t Token) String() string { return t.Name + ":" + string(t.Role) + ":" + t.Hash }

const (
	tokenPrefix = "obx_"
	tokenBytes  = 32
	hashPrefix  = "sha256:"
)

// NewToken makes a token of 256 random bits, and its hash for the configuration.
func NewToken() (secret, hash string) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // it never fails: the process ends if there is no randomness
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
	sum := sha256.Sum256([]byte(secret))
	return secret, hashPrefix + hex.EncodeToString(sum[:])
}

// made tells whether a text has the form of what NewToken makes.
func made(secret string) bool {
	return strings.HasPrefix(secret, tokenPrefix)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// known is a token that was read from the configuration.
type known struct {
	principal Principal
	hash      [sha256.Size]byte
}

// readTokens checks tokens and reports everything that is wrong with them.
func readTokens(tokens []Token) ([]known, error) {
	var out []known
	var errs []error
	names := make(map[string]bool)
	hashes := make(map[string]string)
	for i, t := range tokens {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("token %d (%q): %w", i+1, clip(t.Name), fmt.Errorf(format, args...)))
		}
		if !nameForm.MatchString(t.Name) {
			wrong("name: use 1 to 64 letters, digits, dots, underscores and dashes")
		} else if names[t.Name] {
			wrong("name: it is there twice, and an audit could not tell the two apart")
		}
		names[t.Name] = true
		role, err := ParseRole(string(t.Role))
		if err != nil {
			wrong("%w", err)
		}
		text, ok := strings.CutPrefix(t.Hash, hashPrefix)
		sum, err := hex.DecodeString(text)
		switch {
		case made(t.Hash):
			wrong("hash: this is the token itself, which the configuration must not have; put the hash there that was printed with it")
		case !ok || err != nil || len(sum) != sha256.Size:
			wrong("hash: write %q and 64 hexadecimal digits, as they were printed with the token", hashPrefix)
		case hashes[text] != "":
			wrong("hash: it is also that of %q", hashes[text])
		}
		hashes[text] = t.Name
		k := known{principal: Principal{Name: t.Name, Role: role}}
		copy(k.hash[:], sum)
		out = append(out, k)
	}
	return out, errors.Join(errs...)
}

// find returns whose token it is. It takes the same time whichever of them it is,
// and if it is none.
func find(tokens []known, secret string) (Principal, bool) {
	sum := sha256.Sum256([]byte(secret))
	at := -1
	for i := range tokens {
		same := subtle.ConstantTimeCompare(sum[:], tokens[i].hash[:])
		at = subtle.ConstantTimeSelect(same, i, at)
	}
	if at < 0 {
		return Principal{}, false
	}
	return tokens[at].principal, true
}

// clip keeps error texts short, whatever a configuration holds.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
