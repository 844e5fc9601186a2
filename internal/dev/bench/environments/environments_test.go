package environments

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"testing"
)

// TestCiphertext checks that the constant has the form of a secret.
func TestCiphertext(t *testing.T) {
	text := append([]byte("escx\x00\x00\x00\x01"), bytes.Repeat([]byte{0}, 16)...)
	text = binary.BigEndian.AppendUint32(text, crc32.ChecksumIEEE(text))
	if want := base64.StdEncoding.EncodeToString(text); ciphertext != want {
		t.Errorf("%s, want %s", ciphertext, want)
	}
}
