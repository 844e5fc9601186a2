package config

import (
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

type kind int

const (
	kindString   kind = iota
	kindSecret        // a string that is never shown
	kindBool          // true or false
	kindInt           // a whole number
	kindDuration      // Go syntax
	kindSeconds       // Go syntax, or a bare number of seconds
	kindList          // a list of strings
	kindPath          // a file or directory, made absolute
	kindURL           // an HTTP base URL, normalized
	kindBytes         // a size such as 512m
	kindCPUs          // a number of CPUs such as 1.5
)

// field is one row of the field table.
type field struct {
	// name is the key in the file, env the variable that overrides it.
	name, env string
	kind      kind
	group     group
	// def is the default in the form of the environment; empty is unset.
	def string
	// defText describes a default that depends on the machine or on other keys.
	defText string
	example string
	// choices are the allowed values of a string or of a list's entries; nil allows any.
	choices []string
	unbuilt []string
	// sep separates the entries of a list in the environment: "," or " ".
	sep string
	// notEmpty refuses an empty list, which reads as "nothing" and acts as "everything".
	notEmpty bool
	// min and max are inclusive, in units, bytes or nanoseconds. Both zero means no bounds.
	min, max int64
	envOnly  bool
	lacks    string
	// requirement states when the key must be set; empty is never.
	requirement string
	doc         string
	ptr         func(*Config) any
}

type paths struct {
	cwd, home string
}

// set parses text and stores it in c. Blank text leaves c alone and returns false. An error
// states the problem and the remedy, but not the value, which may be a misplaced secret.
func (f *field) set(c *Config, text string, p paths) (bool, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return false, nil
	}
	switch dst := f.ptr(c).(type) {
	case *[]string:
		split := strings.Fields
		if f.sep == "," {
			split = func(s string) []string { return strings.Split(s, ",") }
		}
		return true, f.setList(c, split(text))
	case *Secret:
		*dst = NewSecret(text)
	case *string:
		value, err := f.parseString(text, p)
		if err != nil {
			return false, err
		}
		*dst = value
	case *bool:
		value, err := strconv.ParseBool(strings.ToLower(text))
		if err != nil {
			return false, errors.New("is neither true nor false: write one of them")
		}
		*dst = value
	case *int:
		value, err := f.parseInt(text)
		if err != nil {
			return false, err
		}
		*dst = int(value)
	case *int64:
		value, err := f.parseInt(text)
		if err != nil {
			return false, err
		}
		*dst = value
	case *float64:
		value, err := strconv.ParseFloat(text, 64)
		if err != nil || math.IsNaN(value) || value < 0.01 || value > 4096 {
			return false, errors.New("is not a number of CPUs: write a number from 0.01 to 4096, such as 1.5")
		}
		*dst = value
	case *time.Duration:
		value, err := f.parseDuration(text)
		if err != nil {
			return false, err
		}
		*dst = value
	default:
		return false, fmt.Errorf("has no parser for %T: this is a bug in the field table", dst)
	}
	return true, nil
}

func (f *field) setList(c *Config, entries []string) error {
	dst, ok := f.ptr(c).(*[]string)
	if !ok {
		return errors.New("is a list here, but takes a single value: write the value without a dash or brackets")
	}
	list := make([]string, 0, len(entries))
	for i, entry := range entries {
		entry = strings.TrimSpace(entry)
		switch {
		case entry == "":
			return fmt.Errorf("has an empty entry, number %d: remove it", i+1)
		case hasControl(entry):
			return fmt.Errorf("has a control character in entry number %d: write the entry again", i+1)
		case f.choices != nil && !slices.Contains(f.choices, entry):
			return fmt.Errorf("has an unknown entry, number %d: choose from %s", i+1, orList(f.choices))
		case slices.Contains(list, entry):
			continue
		}
		list = append(list, entry)
	}
	if f.notEmpty && len(list) == 0 {
		return errEmptyList
	}
	*dst = list
	return nil
}

var errEmptyList = errors.New("is an empty list: list what is allowed, or remove the key for its default")

func (f *field) parseString(text string, p paths) (string, error) {
	if hasControl(text) {
		return "", errors.New("has a control character in it: write the value again, on one line")
	}
	if f.name == "deploy_target" && text == "ecs" {
		return "", errors.New("is ecs, the ECS target, which this agent does not have: set it to docker or process")
	}
	if slices.Contains(f.unbuilt, text) {
		return "", fmt.Errorf("is %s, which is not in this build: set it to %s", text, orList(f.choices))
	}
	if f.choices != nil && !slices.Contains(f.choices, text) {
		return "", fmt.Errorf("is not one of the allowed values: choose %s", orList(f.choices))
	}
	switch f.kind {
	case kindURL:
		return normalizeURL(text)
	case kindPath:
		return p.absolute(text)
	default:
		return text, nil
	}
}

func (p paths) absolute(text string) (string, error) {
	if rest, ok := strings.CutPrefix(text, "~"); ok && (rest == "" || rest[0] == '/') {
		if p.home == "" {
			return "", errors.New("begins with ~ but HOME is not set: write the whole path")
		}
		return filepath.Join(p.home, rest), nil
	}
	if filepath.IsAbs(text) {
		return filepath.Clean(text), nil
	}
	if p.cwd == "" {
		return "", errors.New("is a relative path but the current directory is unknown: write the whole path")
	}
	return filepath.Join(p.cwd, text), nil
}

// normalizeURL drops trailing slashes; a bare host means https, or http on loopback.
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
		// The parser's message quotes the text, which may hold a password.
		return "", errors.New("is not a URL: write it like https://api.example.com")
	case u.Scheme != "https" && u.Scheme != "http":
		return "", errors.New("has a scheme other than https and http: write it like https://api.example.com")
	case u.Hostname() == "" || strings.ContainsFunc(u.Host, unicode.IsSpace):
		return "", errors.New("names no host: write it like https://api.example.com")
	case u.User != nil:
		return "", errors.New("has a user name or password in it: remove everything before the @")
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(text, "#"):
		return "", errors.New("has a query or fragment: remove everything from the ? or # on")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return "", errors.New("has a port outside of 1 to 65535: correct it")
		}
	}
	return strings.TrimRight(u.String(), "/"), nil
}

func (f *field) parseInt(text string) (int64, error) {
	if f.kind == kindBytes {
		return f.parseBytes(text)
	}
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("is not a whole number: write digits only")
	}
	if f.bounded() && (value < f.min || value > f.max) {
		return 0, fmt.Errorf("is out of range: write a number from %d to %d", f.min, f.max)
	}
	return value, nil
}

// parseBytes reads a size as the Docker CLI does: b, k, m and g are powers of 1024.
func (f *field) parseBytes(text string) (int64, error) {
	number, shift := strings.ToLower(text), uint(0)
	number = strings.TrimSuffix(strings.TrimSuffix(number, "b"), "i")
	for suffix, s := range map[string]uint{"k": 10, "m": 20, "g": 30, "t": 40} {
		if rest, ok := strings.CutSuffix(number, suffix); ok {
			number, shift = rest, s
			break
		}
	}
	value, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || value < 0 {
		return 0, errors.New("is not a size: write a whole number with a unit, such as 512m or 4g")
	}
	if value > math.MaxInt64>>shift || value<<shift < f.min {
		return 0, fmt.Errorf("is out of range: write a size of at least %s", formatBytes(f.min))
	}
	return value << shift, nil
}

func (f *field) parseDuration(text string) (time.Duration, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	isNumber := err == nil
	var value time.Duration
	switch {
	case isNumber && f.kind == kindSeconds && seconds <= f.max/int64(time.Second):
		value = time.Duration(seconds) * time.Second
	case isNumber && f.kind == kindSeconds:
		return 0, f.durationRange()
	case isNumber && seconds != 0:
		return 0, errors.New("has no unit: write it with one, such as 30s, 5m or 1h30m")
	default:
		value, err = time.ParseDuration(text)
		if err != nil {
			return 0, errors.New("is not a duration: write a number and a unit, such as 30s, 5m or 1h30m")
		}
	}
	if f.bounded() && (value < time.Duration(f.min) || value > time.Duration(f.max)) {
		return 0, f.durationRange()
	}
	return value, nil
}

func (f *field) durationRange() error {
	return errors.New("is out of range: write a duration from " + f.durationBounds())
}

func (f *field) durationBounds() string {
	return formatDuration(time.Duration(f.min)) + " to " + formatDuration(time.Duration(f.max))
}

func (f *field) bounded() bool { return f.min != 0 || f.max != 0 }

// show returns the value in the form of the environment; a secret shows as [REDACTED].
func (f *field) show(c *Config) string {
	switch v := f.ptr(c).(type) {
	case *[]string:
		return strings.Join(*v, f.sep)
	case *Secret:
		return v.String()
	case *string:
		return *v
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *int64:
		if f.kind == kindBytes {
			return formatBytes(*v)
		}
		return strconv.FormatInt(*v, 10)
	case *float64:
		if *v == 0 {
			return ""
		}
		return strconv.FormatFloat(*v, 'f', -1, 64)
	case *time.Duration:
		if *v == 0 {
			return ""
		}
		return formatDuration(*v)
	default:
		return ""
	}
}

// formatDuration is Duration.String without trailing zero units: 10m, not 10m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

func formatBytes(n int64) string {
	if n == 0 {
		return ""
	}
	units := []string{"", "k", "m", "g", "t"}
	i := 0
	for i < len(units)-1 && n%1024 == 0 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}

// hasControl reports whether s has a character that breaks a line, a header or a terminal.
func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }

func orList(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}
