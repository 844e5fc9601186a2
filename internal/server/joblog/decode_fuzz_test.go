package joblog

import (
	"reflect"
	"testing"
	"unicode/utf8"
)

func FuzzPosition(f *testing.F) {
	for _, s := range []string{"", "1.0.0.0.", "1.2.3.3.4-5-6", "9.1048576.9223372036854775807.1.", "1.0.0.0.-", "+1.0.0.0.", "1.0.0.4."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, err := parsePosition(token)
		if err != nil {
			return
		}
		again, err := parsePosition(p.String())
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%q is parsed as %+v, which is written as %q and parsed as %+v, %v", token, p, p, again, err)
		}
	})
}

func FuzzStoredLine(f *testing.F) {
	for _, s := range []string{"", "\n", "x", "2024-01-01T00:00:00Z text\n", "\x00\x01\x02\n", "\xff\xfe\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var buf []byte
		for len(data) > 0 {
			frame, used := parseLine(data)
			if used < 0 || used > len(data) {
				t.Fatalf("%d of %d bytes were used", used, len(data))
			}
			if used == 0 {
				return
			}
			if line := decode(frame, &buf); !utf8.ValidString(line.Text) {
				t.Fatalf("the line %q is not text", line.Text)
			}
			data = data[used:]
		}
	})
}
