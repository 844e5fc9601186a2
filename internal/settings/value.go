package settings

import (
	"encoding"
	"errors"
	"fmt"
	"math"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"workflowagent/internal/protocol"
)

// Types of values in addition to Go's types.
type (
	// Path is the path of a file or directory. It is made absolute when it is read.
	Path string
	// URL is an HTTP base URL without a trailing slash.
	URL string
	// Text is text of any number of lines, such as a document.
	Text string
	// Seconds is a duration that can be written as a number of seconds.
	Seconds time.Duration
	// Bytes is a size such as 512m; zero means unset.
	Bytes int64
	// CPUs is a number of CPUs such as 1.5; zero means unset.
	CPUs float64
)

// Dirs are the directories to which a path can be relative. A directory that is not known is "".
type Dirs struct {
	Cwd, Home string
}

// Absolute returns the absolute form of a path. A leading ~/ stands for the home directory.
func (d Dirs) Absolute(path string) (string, error) {
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || rest[0] == '/') {
		if d.Home == "" {
			return "", errors.New("begins with ~ but HOME is not set: write the whole path")
		}
		return filepath.Join(d.Home, rest), nil
	}
	if filepath.IsAbs(path) {
		return filepath.Clean(path), nil
	}
	if d.Cwd == "" {
		return "", errors.New("is a relative path but the current directory is unknown: write the whole path")
	}
	return filepath.Join(d.Cwd, path), nil
}

func (f *Field) isList() bool {
	_, ok := f.Value.(*[]string)
	return ok
}

func (f *Field) isSecret() bool {
	_, ok := f.Value.(*Secret)
	return ok
}

// parse parses text in the form of the environment variable and stores it in the value. For blank
// text, it keeps the value and returns false.
func (f *Field) parse(text string, dirs Dirs) (isSet bool, err error) {
	whole := text
	text = strings.TrimSpace(text)
	if text == "" {
		return false, nil
	}
	switch value := f.Value.(type) {
	case *Text:
		*value = Text(whole) // with the indentation of its first line
	case *[]string:
		err = f.setList(f.split(text))
	case *Secret:
		*value = NewSecret(text)
	case *string:
		*value, err = f.checked(text, nil)
	case *Path:
		text, err = f.checked(text, dirs.Absolute)
		*value = Path(text)
	case *URL:
		text, err = f.checked(text, normalizeURL)
		*value = URL(text)
	case *bool:
		if *value, err = strconv.ParseBool(strings.ToLower(text)); err != nil {
			err = errors.New("must be true or false")
		}
	case *int:
		var n int64
		n, err = f.parseInt(text)
		*value = int(n)
	case *int64:
		*value, err = f.parseInt(text)
	case *Bytes:
		*value, err = f.parseBytes(text)
	case *CPUs:
		*value, err = parseCPUs(text)
	case *time.Duration:
		*value, err = f.parseDuration(text)
	case *Seconds:
		*value, err = f.parseSeconds(text)
	case encoding.TextUnmarshaler:
		if err = value.UnmarshalText([]byte(text)); err != nil && f.Choices != nil {
			err = f.notAllowed()
		}
	default:
		err = fmt.Errorf("has no parser for %T: this is a bug in the table of settings", value)
	}
	return err == nil, err
}

func (f *Field) split(text string) []string {
	if f.Separator != "," {
		return strings.Fields(text)
	}
	entries := strings.Split(text, ",")
	for i, entry := range entries {
		entries[i] = strings.TrimSpace(entry)
	}
	return entries
}

func (f *Field) setList(entries []string) error {
	value, ok := f.Value.(*[]string)
	if !ok {
		return errors.New("is a list, but the key takes a single value: write the value without a dash or brackets")
	}
	list := make([]string, 0, len(entries))
	for i, entry := range entries {
		entry = strings.TrimSpace(entry)
		switch {
		case entry == "":
			return fmt.Errorf("has an empty entry, number %d: remove it", i+1)
		case hasControl(entry):
			return fmt.Errorf("has a control character in entry %d: remove the character", i+1)
		case f.Choices != nil && !slices.Contains(f.Choices, entry):
			return fmt.Errorf("has an unknown entry, number %d: choose from %s", i+1, OrList(f.Choices))
		case slices.Contains(list, entry):
			continue
		}
		list = append(list, entry)
	}
	if f.NotEmpty && len(list) == 0 {
		return ErrEmptyList
	}
	*value = list
	return nil
}

// ErrEmptyList is returned for an empty list of allowed values.
var ErrEmptyList = errors.New("is an empty list: add the allowed values, or remove the key to use the default")

// checked returns text after normalization, or an error if the text is not allowed.
func (f *Field) checked(text string, normalize func(string) (string, error)) (_ string, err error) {
	if hasControl(text) {
		return "", errors.New("contains a control character: write the value again, on one line")
	}
	if normalize != nil {
		if text, err = normalize(text); err != nil {
			return "", err
		}
	}
	if f.Check != nil {
		if err := f.Check(text); err != nil {
			return "", err
		}
	}
	if f.Choices != nil && !slices.Contains(f.Choices, text) {
		return "", f.notAllowed()
	}
	return text, nil
}

func (f *Field) notAllowed() error {
	return errors.New("is not one of the allowed values: choose " + OrList(f.Choices))
}

// normalizeURL returns a URL without trailing slashes. For a host without a scheme, it adds https,
// or http on loopback.
func normalizeURL(text string) (string, error) {
	if !strings.Contains(text, "://") {
		scheme := "https://"
		if u, err := url.Parse("http://" + text); err == nil && protocol.IsLoopback(u.Hostname()) {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil:
		// The parser's message quotes the text, which might contain a password.
		return "", errors.New("is not a URL: write it like https://api.example.com")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("has a scheme other than https and http: write it like https://api.example.com")
	case u.Hostname() == "" || strings.ContainsFunc(u.Host, unicode.IsSpace):
		return "", errors.New("names no host: write it like https://api.example.com")
	case u.User != nil:
		return "", errors.New("contains a user name or password: remove it and the @, as in https://api.example.com")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return "", errors.New("has a query or fragment: remove everything from the ? or #")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", errors.New("has a port outside the range 1 to 65535: correct it")
		}
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func (f *Field) parseInt(text string) (int64, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("is not a whole number: write digits only")
	}
	if !f.inRange(value) {
		return 0, errors.New("is out of range: write a number " + f.Bounds())
	}
	return value, nil
}

// ParseBytes parses a size as the Docker CLI does: the units b, k, m and g are powers of 1024.
func ParseBytes(text string) (n Bytes, err error) {
	number, shift := strings.ToLower(text), 0
	number = strings.TrimSuffix(strings.TrimSuffix(number, "b"), "i")
	if last := len(number) - 1; last >= 0 {
		if unit := strings.IndexByte("kmgt", number[last]); unit >= 0 {
			number, shift = number[:last], 10*(unit+1)
		}
	}
	value, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || value < 0 {
		return 0, errors.New("is not a size: write a whole number with a unit, such as 512m or 4g")
	}
	if value > math.MaxInt64>>shift {
		return 0, errRange
	}
	return Bytes(value << shift), nil
}

var errRange = errors.New("is out of range")

func (f *Field) parseBytes(text string) (Bytes, error) {
	n, err := ParseBytes(text)
	if errors.Is(err, errRange) || err == nil && !f.inRange(int64(n)) {
		err = errors.New("is out of range: write a size of " + f.Bounds())
	}
	if err != nil {
		return 0, err
	}
	return n, nil
}

func parseCPUs(text string) (CPUs, error) {
	value, err := strconv.ParseFloat(text, 64)
	if err != nil || !(value >= 0.01 && value <= 4096) { // false for NaN
		return 0, errors.New("is not a number of CPUs: write a number from 0.01 to 4096, such as 1.5")
	}
	return CPUs(value), nil
}

func (f *Field) parseDuration(text string) (time.Duration, error) {
	value, err := time.ParseDuration(text)
	if err != nil {
		if _, err := strconv.ParseInt(text, 10, 64); err == nil {
			return 0, errors.New("has no unit: write it with one, such as 30s, 5m or 1h30m")
		}
		return 0, errors.New("is not a duration: write a number and a unit, such as 30s, 5m or 1h30m")
	}
	if !f.inRange(int64(value)) {
		return 0, errors.New("is out of range: write a duration " + f.Bounds())
	}
	return value, nil
}

func (f *Field) parseSeconds(text string) (Seconds, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		text = time.Duration(min(n, math.MaxInt64/int64(time.Second)) * int64(time.Second)).String()
	}
	value, err := f.parseDuration(text)
	return Seconds(value), err
}

func (f *Field) inRange(value int64) bool { return value >= f.Min && (f.Max == 0 || value <= f.Max) }

// Bounds returns a description of the limits of a number, a duration or a size.
func (f *Field) Bounds() string {
	show := func(n int64) string {
		switch f.Value.(type) {
		case *time.Duration, *Seconds:
			return formatDuration(time.Duration(n))
		case *Bytes:
			return FormatBytes(Bytes(n))
		default:
			return strconv.FormatInt(n, 10)
		}
	}
	if f.Max == 0 {
		return "at least " + show(f.Min)
	}
	return "from " + show(f.Min) + " to " + show(f.Max)
}

// show returns the value in the form of the environment variable, or [REDACTED] for a secret.
func (f *Field) show() string {
	switch value := f.Value.(type) {
	case *[]string:
		return strings.Join(*value, f.Separator)
	case *string:
		return *value
	case *Path:
		return string(*value)
	case *Text:
		return strings.Join(strings.Fields(string(*value)), " ")
	case *URL:
		return string(*value)
	case *bool:
		return strconv.FormatBool(*value)
	case *int:
		return strconv.Itoa(*value)
	case *int64:
		return strconv.FormatInt(*value, 10)
	case *Bytes:
		return FormatBytes(*value)
	case *CPUs:
		if *value == 0 {
			return ""
		}
		return strconv.FormatFloat(float64(*value), 'f', -1, 64)
	case *time.Duration:
		return formatDuration(*value)
	case *Seconds:
		return formatDuration(time.Duration(*value))
	default:
		return fmt.Sprint(value)
	}
}

// formatDuration formats d like Duration.String, but without trailing zero units: 10m, not 10m0s.
// For zero, it returns "".
func formatDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// FormatBytes returns the shortest text that [ParseBytes] reads as n, or "" for 0.
func FormatBytes(n Bytes) string {
	if n == 0 {
		return ""
	}
	units := []string{"", "k", "m", "g", "t"}
	i := 0
	for i < len(units)-1 && n%1024 == 0 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(int64(n), 10) + units[i]
}

// hasControl reports whether s contains a control character, which could break a line, a header or
// a terminal.
func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

// OrList returns the words in the form "a, b or c".
func OrList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
