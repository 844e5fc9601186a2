package docker

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"workflowagent/internal/agent/executor"
)

func TestExtractStaysInside(t *testing.T) {
	dst := t.TempDir()
	archive := func(headers ...tar.Header) *bytes.Buffer {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range headers {
			if h.Typeflag == tar.TypeReg {
				h.Size = 1
			}
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if h.Typeflag == tar.TypeReg {
				if _, err := w.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return &b
	}
	err := extract(archive(
		tar.Header{Typeflag: tar.TypeDir, Name: "spool/"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/../../outside"},
		tar.Header{Typeflag: tar.TypeReg, Name: "/spool/../outside"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool"},
		tar.Header{Typeflag: tar.TypeSymlink, Name: "spool/link", Linkname: "/etc"},
		tar.Header{Typeflag: tar.TypeLink, Name: "spool/hard", Linkname: "/etc/passwd"},
		tar.Header{Typeflag: tar.TypeFifo, Name: "spool/pipe"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/other"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/sub/step-0001.state"},
		tar.Header{Typeflag: tar.TypeReg, Name: "spool/step-0001.state", Mode: 0o4777},
	), spoolCopy(t, dst))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dst)
	if err != nil || len(entries) != 1 {
		t.Errorf("extracted %v, %v", entries, err)
	}
	if info, err := os.Stat(filepath.Join(dst, "step-0001.state")); err != nil || info.Mode() != 0o600 {
		t.Errorf("the good file has mode %v, %v", info.Mode(), err)
	}
}

// TestExtractIsBounded extracts sparse spools that exceed the size of any runner's spool.
func TestExtractIsBounded(t *testing.T) {
	for name, sizes := range map[string]map[string]int64{
		"one segment":      {"spool/step-0001-0000000000000000.log": 300 << 20},
		"several segments": {"spool/step-0001-0000000000000000.log": 150 << 20, "spool/step-0001-0000000157286400.log": 150 << 20},
		"no segments":      {"spool/other": 8 << 30},
	} {
		t.Run(name, func(t *testing.T) {
			reader, writer := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				archive := tar.NewWriter(writer)
				for file, size := range sizes {
					if archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: file, Size: size}) != nil {
						return
					}
					if _, err := io.CopyN(archive, zeros{}, size); err != nil {
						return
					}
				}
				writer.CloseWithError(archive.Close())
			}()
			dst := t.TempDir()
			err := extract(reader, spoolCopy(t, dst))
			reader.Close()
			<-done
			if err == nil || !strings.Contains(err.Error(), "larger than") {
				t.Errorf("extracted with %v", err)
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func spoolCopy(t *testing.T, dst string) *executor.SpoolCopy {
	t.Helper()
	to, err := executor.NewSpoolCopy(dst)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = to.Close() })
	return to
}
