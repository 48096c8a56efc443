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

// Token is a bearer token in the configuration, which contains only its hash.
type Token struct {
	// Name is the name of the user: 1 to 64 letters, digits and ._-
	Name string
	// Role is the role of the owner: one of Roles, consumer(NAMES) or producer(TOPICS).
	Role Role
	// Hash is "sha256:" and the token's SHA-256 in hex, as NewToken returns it.
	//
	// Unlike a password, a token has 256 random bits, which cannot be guessed however
	// fast the hash is. A slow hash would only allow denial of service.
	Hash string
}

// ParseToken parses the form of a token in settings, NAME:ROLE:HASH. New validates the
// parts.
func ParseToken(s string) (Token, error) {
	name, rest, ok := strings.Cut(strings.TrimSpace(s), ":")
	role, hash, ok2 := strings.Cut(rest, ":")
	switch {
	case made(s):
		return Token{}, errors.New("this is the token itself, which the configuration must not contain; use the line printed below it")
	case !ok || !ok2:
		return Token{}, errors.New("must be NAME:ROLE:sha256:HEX, as printed with the token")
	}
	return Token{Name: name, Role: Role(role), Hash: hash}, nil
}

// String returns the form of the token in settings.
func (t Token) String() string { return t.Name + ":" + string(t.Role) + ":" + t.Hash }

const (
	tokenPrefix = "obx_"
	tokenBytes  = 32
	hashPrefix  = "sha256:"
)

// NewToken returns a token of 256 random bits, and its hash for the configuration.
func NewToken() (secret, hash string) {
	b := make([]byte, tokenBytes)
	_, _ = rand.Read(b) // it never fails: the process ends if there is no randomness
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b)
	sum := sha256.Sum256([]byte(secret))
	return secret, hashPrefix + hex.EncodeToString(sum[:])
}

// made reports whether a text has the form of a token of NewToken.
func made(secret string) bool {
	return strings.HasPrefix(secret, tokenPrefix)
}

var nameForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// known is a token of the configuration.
type known struct {
	principal Principal
	hash      [sha256.Size]byte
}

// readTokens validates tokens and reports every problem.
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
			wrong("name: used twice; audit entries would be ambiguous")
		}
		names[t.Name] = true
		principal, err := parseGrant(string(t.Role))
		if err != nil {
			wrong("%w", err)
		}
		text, ok := strings.CutPrefix(t.Hash, hashPrefix)
		sum, err := hex.DecodeString(text)
		switch {
		case made(t.Hash):
			wrong("hash: this is the token itself, which the configuration must not contain; use the hash printed with it")
		case !ok || err != nil || len(sum) != sha256.Size:
			wrong("hash: must be %q and 64 hexadecimal digits, as printed with the token", hashPrefix)
		case hashes[text] != "":
			wrong("hash: also used by %q", hashes[text])
		}
		hashes[text] = t.Name
		principal.Name = t.Name
		k := known{principal: principal}
		copy(k.hash[:], sum)
		out = append(out, k)
	}
	return out, errors.Join(errs...)
}

// find returns the principal of a token. Its duration does not depend on which token
// matches, or whether one does.
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

// clip bounds the length of values in error texts.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
