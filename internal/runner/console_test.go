package runner

import (
	"bytes"
	"testing"
)

func TestOwnLogBeginsItsOwnLine(t *testing.T) {
	var merged bytes.Buffer
	out := &console{out: &merged}
	log := consoleLog{out, &merged}
	for _, w := range []struct {
		log  bool
		text string
	}{
		{true, "started\n"},
		{false, "@ Updating..."},
		{true, "cancelled\n"},
		{true, "ended\n"},
		{false, "..."},
		{false, "\n"},
		{true, "finished\n"},
	} {
		var err error
		if w.log {
			_, err = log.Write([]byte(w.text))
		} else {
			_, err = out.Write([]byte(w.text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := "started\n@ Updating...\ncancelled\nended\n...\nfinished\n"; merged.String() != want {
		t.Errorf("the output is %q, want %q", merged.String(), want)
	}
}
