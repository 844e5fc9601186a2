package rawjson

import (
	"encoding/json"
	"strings"
	"testing"
)

var validSeeds = []string{
	``, ` `, `{}`, `[]`, ` [ ] `, `{"a":1}`, `{"a":1,}`, `[1,]`, `[,1]`, `{,}`, `{"a"}`, `{"a":}`, `{a:1}`, `{"a":1 "b":2}`,
	`"`, `"\`, `"\u12`, `"\u12g4"`, `"\u12aB"`, `"\x"`, "\"\n\"", `"\/\b\f\n\r\t\\\""`, `tru`, `true`, `nul`, `null`, `false`, `truex`,
	`-`, `-0`, `01`, `1.`, `.1`, `1.5`, `1e`, `1e+`, `1E-5`, `-1.0e10`, `+1`, `1 2`, `{} {}`, `[[[[]]]]`, `[[`, `{"a":{"b":[{}]}}`, "\x00", "\"\xff\"",
}

func TestValid(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, in := range append(validSeeds, deep(maxNesting), deep(maxNesting+1)) {
		if got, want := Valid([]byte(in)), json.Valid([]byte(in)); got != want {
			t.Errorf("Valid(%.60q) = %v, want %v", in, got, want)
		}
	}
}

func FuzzValid(f *testing.F) {
	for _, s := range validSeeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, want := Valid(data), json.Valid(data); got != want {
			t.Errorf("Valid(%q) = %v, want %v", data, got, want)
		}
	})
}
