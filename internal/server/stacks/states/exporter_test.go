package states

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

var exportSeeds = []string{
	`{"version":3,"deployment":{"resources":[{"a":"}\",{"}]},"isInvalid":false}`,
	`{ "isInvalid" : [1,{"version":9}] , "deployment" : null , "features" : [ "refreshBeforeUpdate" ] , "version" : 4 }`,
	`{"features":null,"version":1,"deployment":{}}`, `{}`, `{"version":2}`, `{"deployment":{"x":"\\"}}`,
	`{"deployment":{"a":1},"version":3,"deployment":{"a":2}}`, `{"a very long name of a member that nothing knows":"deployment","versio":1}`,
}

func exported(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	x := exporter{w: &out}
	if _, err := io.CopyBuffer(&x, struct{ io.Reader }{r}, make([]byte, 64)); err != nil {
		t.Fatal(err)
	}
	if err := x.end(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func checkExport(t *testing.T, body []byte) {
	t.Helper()
	st, err := Parse(body, nil)
	if err != nil {
		return
	}
	whole, err := st.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var want any
	if err := json.Unmarshal(whole, &want); err != nil {
		return // bytes that are not UTF-8
	}
	for name, r := range map[string]io.Reader{"pieces": bytes.NewReader(body), "bytes": iotest.OneByteReader(bytes.NewReader(body))} {
		var got any
		text := exported(t, r)
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s: %q is exported as %q: %v", name, body, text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %q is exported as %q (-want +got):\n%s", name, body, text, diff)
		}
	}
}

func TestExport(t *testing.T) {
	for _, body := range exportSeeds {
		checkExport(t, []byte(body))
	}
	if got := string(exported(t, bytes.NewReader(nil))); got != `{"version":3,"deployment":null}` {
		t.Errorf("no state is exported as %s", got)
	}
}

func FuzzExport(f *testing.F) {
	for _, s := range exportSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(checkExport)
}
