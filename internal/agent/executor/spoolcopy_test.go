package executor

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
)

func TestSpoolCopyKeepsSpaceFree(t *testing.T) {
	dst := t.TempDir()
	c, err := NewSpoolCopy(dst)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.free = func() (uint64, error) { return spaceReserve + 9, nil }
	if err := c.Add("step-0001.state", 10, strings.NewReader("0123456789")); !errors.Is(err, ErrNoSpace) {
		t.Errorf("a file for which the disk has no space: %v", err)
	}
	if err := c.Add("step-0001.state", 9, strings.NewReader("0123456789")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(dst + "/step-0001.state"); err != nil || string(data) != "012345678" {
		t.Errorf("copied %q, %v", data, err)
	}
}

func TestSpoolCopyOfManyFiles(t *testing.T) {
	for what, add := range map[string]func(*SpoolCopy) error{
		"empty files":           func(c *SpoolCopy) error { return c.Add("nothing", 0, bytes.NewReader(nil)) },
		"directories and links": (*SpoolCopy).Skip,
	} {
		c, err := NewSpoolCopy(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for n := 0; ; n++ {
			err := add(c)
			if n > 100_000 {
				t.Fatalf("any number of %s is accepted", what)
			}
			if err != nil {
				break
			}
		}
	}
}

func TestSpoolWriterKeepsSpaceFree(t *testing.T) {
	file, err := os.Create(t.TempDir() + "/spool")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	w := NewSpoolWriter(file)
	if _, err := w.free(); err != nil {
		t.Errorf("the free space of the file's disk: %v", err)
	}
	w.free = func() (uint64, error) { return spaceReserve + 9, nil }
	if n, err := w.Write([]byte("0123456789")); n != 0 || !errors.Is(err, ErrNoSpace) {
		t.Errorf("a write for which the disk has no space: %d, %v", n, err)
	}
	if _, err := w.Write([]byte("012345678")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(file.Name()); err != nil || string(data) != "012345678" {
		t.Errorf("wrote %q, %v", data, err)
	}
}
