package release

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"maps"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"workflowagent/internal/dev/release/signing"
)

func FuzzParseChannel(f *testing.F) {
	f.Add([]byte("version: v1.2.3\npublished: 2026-11-21T07:08:09Z\n"))
	f.Add([]byte("version: v1.2.3-rc.1\npublished: 2026-11-21T07:08:09+14:00\nlater: x: y\n"))
	f.Add([]byte("version: ../../x\npublished: 0000-00-00T00:00:00Z"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := ParseChannel(text)
		if err != nil {
			return
		}
		if CheckVersion(c.Version) != nil || len(text) > maxChannelFile {
			t.Fatalf("%q is the channel %+v", text, c)
		}
		again, err := ParseChannel(c.Text())
		if err != nil || again.Version != c.Version || !again.Published.Equal(c.Published.Truncate(time.Second)) {
			t.Fatalf("%+v is written as %q and read as %+v, %v", c, c.Text(), again, err)
		}
	})
}

func FuzzParseChecksums(f *testing.F) {
	f.Add([]byte(strings.Repeat("ab", 32) + "  file.tar.gz\n"))
	f.Add([]byte(strings.Repeat("AB", 32) + "  a b\n" + strings.Repeat("00", 32) + "  ..\n"))
	f.Add([]byte(strings.Repeat("ab", 32) + "  a/b\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		sums, err := ParseChecksums(text)
		if err != nil {
			return
		}
		for name := range sums {
			if !filepath.IsLocal(name) || filepath.Base(name) != name {
				t.Fatalf("%q names the file %q", text, name)
			}
		}
		var written bytes.Buffer
		if _, err := sums.WriteTo(&written); err != nil {
			t.Fatal(err)
		}
		again, err := ParseChecksums(written.Bytes())
		if err != nil || !maps.Equal(again, sums) {
			t.Fatalf("%v is written as %q, %v", sums, written.Bytes(), err)
		}
	})
}

func FuzzKeysAndSignatures(f *testing.F) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	public, err := signing.PublicPEM(key)
	if err != nil {
		f.Fatal(err)
	}
	signature, err := signing.Sign(key, []byte("signed"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(public, signature)
	f.Add([]byte("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"), []byte{0x30, 0x80})
	f.Fuzz(func(t *testing.T, text, signature []byte) {
		if _, err := signing.ParsePrivateKey(text); err != nil && len(text) > 80 && strings.Contains(err.Error(), string(text)) {
			t.Fatalf("the error repeats the key: %v", err)
		}
		keys, err := ParseKeys(text)
		if err != nil {
			return
		}
		if keys.Verify([]byte("other"), signature) == nil {
			t.Fatal("a signature by no key is accepted")
		}
	})
}

func FuzzCheckVersion(f *testing.F) {
	f.Add("v1.2.3")
	f.Add("v0.0.0-rc.1")
	f.Add("v1.2.3/../x")
	f.Fuzz(func(t *testing.T, text string) {
		if CheckVersion(text) == nil && (filepath.Base(text) != text || len(text) > maxVersion || strings.Trim(text, ".-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") != "") {
			t.Errorf("%q is a version", text)
		}
	})
}
