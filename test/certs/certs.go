// Package certs issues certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Authority signs certificates. Its methods are not safe for concurrent use.
type Authority struct {
	// File has the certificate of the authority, as PEM.
	File string
	// Cert is the certificate of the authority.
	Cert *x509.Certificate

	t   testing.TB
	key *ecdsa.PrivateKey
}

// written counts the files of all authorities.
var written atomic.Int64

// NewAuthority writes the certificate of a new authority to dir/name.pem.
func NewAuthority(t testing.TB, dir, name string) *Authority {
	t.Helper()
	a := &Authority{t: t, File: filepath.Join(dir, name+".pem")}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, key := a.sign(template, template)
	var err error
	a.Cert, err = x509.ParseCertificate(der)
	a.must(err)
	a.key = key
	a.write(a.File, block("CERTIFICATE", der))
	return a
}

// Issue writes a certificate for an address and its key; both may be one file. Later ones have
// later file times, also in a file system with coarse times.
func (a *Authority) Issue(cert, key string, ip net.IP) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: filepath.Base(cert)}, NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{ip},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.Cert)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	a.must(err)
	if cert == key {
		a.write(cert, append(block("PRIVATE KEY", pkcs8), block("CERTIFICATE", der)...))
		return
	}
	a.write(cert, block("CERTIFICATE", der))
	a.write(key, block("PRIVATE KEY", pkcs8))
}

// sign returns a certificate of a new key, signed by parent's; the authority's own signs itself.
func (a *Authority) sign(template, parent *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err = x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	a.must(err)
	return der, key
}

func (a *Authority) write(file string, b []byte) {
	a.t.Helper()
	a.must(os.WriteFile(file, b, 0o600))
	at := time.Now().Add(time.Duration(written.Add(1)) * time.Minute)
	a.must(os.Chtimes(file, at, at))
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
