package deploy

import (
	"strings"
	"time"

	"workflowagent/internal/server/joblog"
)

// logLines are log lines in JSON. A header line has no text, and its time is the zero time. Logs are
// the largest responses, and package json needs several times as long for them.
type logLines []joblog.Line

// MarshalJSON implements [json.Marshaler].
func (l logLines) MarshalJSON() ([]byte, error) { return l.appendTo(nil), nil }

// size returns the approximate size of the lines in JSON, in bytes.
func (l logLines) size() int64 {
	const line = len(`{"timestamp":"2006-01-02T15:04:05.000000Z","line":""},`) + len(`\n`)
	n := len(l) * line
	for i := range l {
		n += len(l[i].Text) + len(l[i].Header)
	}
	return int64(n)
}

func (l logLines) appendTo(dst []byte) []byte {
	dst = append(dst, '[')
	for i := range l {
		if i > 0 {
			dst = append(dst, ',')
		}
		if l[i].Header != "" {
			dst = appendString(append(dst, `{"header":`...), strings.ToValidUTF8(l[i].Header, "\ufffd"))
			dst = append(dst, `,"timestamp":"0001-01-01T00:00:00Z"}`...)
			continue
		}
		dst = l[i].Time.UTC().AppendFormat(append(dst, `{"timestamp":"`...), time.RFC3339Nano)
		dst = append(appendString(append(dst, `","line":`...), l[i].Text), '}')
	}
	return append(dst, ']')
}

// appendString appends a string, which must be valid UTF-8, in JSON.
func appendString(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	done := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[done:i]...)
		done = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(dst, s[done:]...), '"')
}
