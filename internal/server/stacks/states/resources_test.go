package states

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"workflowagent/internal/server/fault"
)

func storedState(t *testing.T, body string) Stored {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := io.WriteString(z, body); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return Stored{packed.Bytes()}
}

// TestResources reads the resources of states piece by piece.
func TestResources(t *testing.T) {
	for body, want := range map[string]string{
		`{"version":3,"deployment":{"manifest":{"resources":[1]},"resources":[{"a":[1,{"b":2}]},{"c":"]}"}],"metadata":{}},"x":[]}`: `{"a":[1,{"b":2}]} {"c":"]}"}`,
		`{"deployment":{"resources":null}}`: "", `{"deployment":null}`: "", `{"deployment":{}}`: "", `{}`: "",
	} {
		var got []string
		for r, err := range storedState(t, body).Resources(1 << 20) {
			if err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			got = append(got, string(r))
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s: got %s, want %s", body, text, want)
		}
	}
	for range (Stored{}).Resources(1) {
		t.Error("a stack without a state has resources")
	}
}

// TestAt reads resources again at the places at which they were found.
func TestAt(t *testing.T) {
	st := storedState(t, `{"version":3, "deployment": {"resources" : [ {"a":"ü"} , {"b": [1, {"c":"]"}] },{} ]}}`)
	n := 0
	for piece, err := range st.Pieces(1 << 20) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		if again, err := st.At(piece.Begin, len(piece.Raw)); err != nil || string(again) != string(piece.Raw) {
			t.Errorf("at %d is %s (%v), not %s", piece.Begin, again, err, piece.Raw)
		}
	}
	if n != 3 {
		t.Errorf("%d resources", n)
	}
	for _, other := range []Stored{st, {}} {
		if part, err := other.At(60, 1000); part != nil || err != nil {
			t.Errorf("behind the end is %q (%v)", part, err)
		}
	}
}

// TestResourcesLimit ends with an error at the limit, and stops when the caller does.
func TestResourcesLimit(t *testing.T) {
	st := storedState(t, `{"deployment":{"resources":[`+strings.Repeat(`{"a":1},`, 10_000)+`{}]}}`)
	n := 0
	for _, err := range st.Resources(40_000) {
		if err == nil {
			n++
			continue
		}
		if fault.KindOf(err) != fault.KindTooLarge || !strings.Contains(err.Error(), "larger than 39 KiB") {
			t.Errorf("the error is %v", err)
		}
		n += 1_000_000
	}
	if n < 1_000_000+1000 || n > 1_000_000+5000 {
		t.Errorf("the loop ended after %d rounds, without an error, or read everything", n)
	}
	large := storedState(t, `{"deployment":{"resources":[{},{"a":"`+strings.Repeat("x", MaxResource+1<<20)+`"}]}}`)
	var last error
	for _, err := range large.Resources(1 << 30) {
		last = err
	}
	if fault.KindOf(last) != fault.KindTooLarge || !strings.Contains(last.Error(), "a resource that is larger than 8.0 MiB") {
		t.Errorf("a large resource ends with %v", last)
	}
	for range st.Resources(1 << 30) {
		return
	}
}
