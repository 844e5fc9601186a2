//go:build linux

package pod

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestSettle(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	if !Settle(w, 0) {
		t.Error("an empty pipe is not settled")
	}
	text := make([]byte, 50_000)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if Settle(w, 20*time.Millisecond) {
		t.Error("a full pipe is settled")
	}
	settled := make(chan bool)
	go func() { settled <- Settle(w, time.Minute) }()
	if _, err := io.ReadFull(r, text[:len(text)-1]); err != nil {
		t.Fatal(err)
	}
	if n := unread(w); n != 1 {
		t.Errorf("%d bytes are unread", n)
	}
	select {
	case <-settled:
		t.Error("Settle did not wait for the last byte")
	default:
	}
	if _, err := io.ReadFull(r, text[:1]); err != nil {
		t.Fatal(err)
	}
	if !<-settled {
		t.Error("Settle failed")
	}
}

func TestSettleOther(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("text"); err != nil {
		t.Fatal(err)
	}
	for _, out := range []io.Writer{file, new(bytes.Buffer)} {
		if !Settle(out, 0) {
			t.Errorf("%T is not settled", out)
		}
	}
}
