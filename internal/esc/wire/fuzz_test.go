package wire

import (
	"bytes"
	"testing"
)

// FuzzMessage reads what an evaluator may say, and checks that what was read can be written and read again.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"ask":{"environment":{"name":"a/b@2","importer":"a/c","root":true}}}`))
	f.Add([]byte(`{"ask":{"open":{"provider":"p","inputs":{"a":{"value":[{"value":1e9}],"secret":true,"trace":{}}}}}}`))
	f.Add([]byte(`{"result":{"diagnostics":[{"summary":"s"}],"environment":{"properties":{"a":{"value":{}}},"schema": {}},"imports":["a"]}}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		var message Message
		if NewReader(bytes.NewReader(append(line, '\n'))).Read(&message, 1<<20) != nil {
			return
		}
		first, err := Append(nil, message, 16<<20)
		if err != nil {
			t.Fatal(err)
		}
		var again Message
		if err := NewReader(bytes.NewReader(first)).Read(&again, 16<<20); err != nil {
			t.Fatalf("%s: %v", first, err)
		}
		if second, err := Append(nil, again, 16<<20); err != nil || !bytes.Equal(first, second) {
			t.Errorf("%s became %s, %v", first, second, err)
		}
	})
}
