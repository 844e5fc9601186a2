package states

import (
	"bytes"
	"fmt"
	"testing"
)

func BenchmarkParse(b *testing.B) {
	var buf bytes.Buffer
	buf.WriteString(`{"version":3,"deployment":{"resources":[`)
	for i := range 1000 {
		if i > 0 {
			buf.WriteByte(',')
		}
		fmt.Fprintf(&buf, `{"urn":"urn:pulumi:dev::proj::lab:index:Random::r%d","custom":true,"id":"r-%08x","type":"lab:index:Random",`+
			`"outputs":{"hex":"%016x","path":"project:///../../../../root/go/pkg/mod/some/module@v1.2.3/pkg/run.go#%d"},`+
			`"stackTrace":[{"sourcePosition":"project:///main.go#1"},{"sourcePosition":"project:///main.go#2"}],"dependencies":[]}`, i, i, i, i)
	}
	buf.WriteString(`]}}`)
	b.SetBytes(int64(buf.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(buf.Bytes(), []byte{}); err != nil {
			b.Fatal(err)
		}
	}
}
