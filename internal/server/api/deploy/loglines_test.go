package deploy

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
	"unicode/utf8"

	"workflowagent/internal/server/joblog"
)

func TestLogLines(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000000, time.FixedZone("", 3600))
	for want, lines := range map[string]logLines{
		`[]`: nil,
		`[{"header":"Get \"source\"","timestamp":"0001-01-01T00:00:00Z"},` +
			`{"timestamp":"2026-01-02T02:04:05.678Z","line":"a\n"},{"timestamp":"0001-01-01T00:00:00Z","line":""}]`: {
			{Header: `Get "source"`}, {Time: at, Text: "a\n"}, {},
		},
	} {
		got, err := json.Marshal(lines)
		if err != nil || string(got) != want {
			t.Errorf("%s (%v), want %s", got, err, want)
		}
		if int(lines.size()) < len(want)-64 {
			t.Errorf("the size of %s is estimated as %d", want, lines.size())
		}
	}
}

func FuzzLogLines(f *testing.F) {
	f.Add("", "")
	f.Add("pulumi update", "\x1b[31m\"größer\" \\ <\t> \x00\x7f\u2028\r\n")
	f.Fuzz(func(t *testing.T, header, text string) {
		if !utf8.ValidString(text) || !utf8.ValidString(header) {
			return // only valid text is in a log line
		}
		at := time.Unix(1767323045, 678901000).UTC()
		type line struct {
			Header    string
			Timestamp time.Time
			Line      string
		}
		want := []line{{"", at, text}}
		lines := logLines{{Time: at, Text: text}}
		if header != "" {
			want, lines = append(want, line{Header: header}), append(lines, joblog.Line{Header: header})
		}
		var got []line
		if err := json.Unmarshal(lines.appendTo(nil), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q, want %q (%v)", got, want, err)
		}
	})
}
