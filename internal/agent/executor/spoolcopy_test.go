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
	c, err := NewSpoolCopy(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for n := 0; ; n++ {
		err := c.Add("nothing", 0, bytes.NewReader(nil))
		if n > 100_000 {
			t.Fatal("any number of empty files is accepted")
		}
		if err != nil {
			break
		}
	}
}
