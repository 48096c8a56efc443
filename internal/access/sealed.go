package access

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// sealer encrypts and authenticates the values of cookies. All processes with the same secret
// read them, so that none stores a session.
type sealer struct{ aead cipher.AEAD }

// newSealer derives a key from a secret for one purpose.
func newSealer(secret, purpose string) (sealer, error) {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, purpose, 32)
	if err != nil {
		return sealer{}, fmt.Errorf("derive the key of cookies: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return sealer{}, fmt.Errorf("key of cookies: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return sealer{aead}, err
}

// sealedValue is a value that ends.
type sealedValue struct {
	Until time.Time       `json:"until"`
	Value json.RawMessage `json:"value"`
}

// seal returns v as the value of the cookie name, which open accepts before until.
func (s sealer) seal(name string, v any, until time.Time) (string, error) {
	value, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(sealedValue{until, value})
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, text, []byte(name))), nil
}

// errSealed means that a cookie is from another secret, was changed, or has ended.
var errSealed = errors.New("the cookie is not valid or has ended")

// open reads the value of a cookie of seal into v.
func (s sealer) open(c *http.Cookie, now time.Time, v any) error {
	b, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil {
		return errSealed
	}
	text, err := s.aead.Open(nil, nil, b, []byte(c.Name))
	var in sealedValue
	if err != nil || json.Unmarshal(text, &in) != nil || !now.Before(in.Until) || json.Unmarshal(in.Value, v) != nil {
		return errSealed
	}
	return nil
}
