package redact

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Replacers are built on first use.
var (
	gson            = strings.NewReplacer(`\"`, `\"`, "<", `\u003c`, ">", `\u003e`, "&", `\u0026`, "=", `\u003d`, "'", `\u0027`)
	lineSeparators  = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")
	powerShell      = strings.NewReplacer("`", "``", `"`, "`\"", "$", "`$")
	shellDouble     = strings.NewReplacer(`\`, `\\`, "`", "\\`", `"`, `\"`, "$", `\$`)
	backslashDouble = strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	hcl             = strings.NewReplacer("${", "$${", "%{", "%%{", `\`, `\\`, `"`, `\"`)
	xmlText         = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")
	xmlTextShort    = strings.NewReplacer("&", "&amp;", "<", "&lt;")
	goXML           = strings.NewReplacer(`"`, "&#34;", "'", "&#39;", "\t", "&#x9;", "\n", "&#xA;", "\r", "&#xD;")
	yamlNames       = strings.NewReplacer(`\\`, `\\`, `\x85`, `\N`, `\xA0`, `\_`, `\u2028`, `\L`, `\u2029`, `\P`)
	xmlAttribute    = strings.NewReplacer("\t", "&#9;", "\n", "&#10;", "\r", "&#13;")
)

// quoted returns s as quoted or escaped in the formats that tools print.
func quoted(s string) []string {
	all := jsonForms(s)
	all = append(all, languageForms(s)...)
	all = append(all, shellForms(s)...)
	return append(all, markupForms(s)...)
}

// jsonForms returns s as encoders of JSON, JavaScript and YAML escape it.
func jsonForms(s string) []string {
	plain := jsonText(s, false)
	all := []string{
		plain, jsonText(s, true),
		slashes(plain), slashes(escapeASCII.text(plain)), // PHP, and others for script elements
		escapeASCII.text(plain), // Python
		dotNet.text(s),
		gson.Replace(plain),                         // Gson
		strings.ReplaceAll(plain, "\x7f", `\u007f`), // jq
	}
	// JSON within a JSON string, as in messages and log lines.
	for _, form := range all[:2] {
		all = append(all, jsonText(form, false))
	}
	return all
}

func jsonText(s string, html bool) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(html)
	if enc.Encode(s) != nil {
		return s // encoding a string never fails
	}
	text := strings.TrimSuffix(b.String(), "\n")
	text = text[1 : len(text)-1]
	if !html {
		text = lineSeparators.Replace(text) // only Go escapes them
	}
	return text
}

func slashes(s string) string { return strings.ReplaceAll(s, "/", `\/`) }

// escaper escapes text as in the string literals of one language.
type escaper struct {
	// short contains the characters that become a backslash and the letter at the same position in
	// letters.
	short, letters string
	plain          func(rune) bool // reports whether a character stays unescaped
	escape         func(b []byte, r rune) []byte
}

func (e escaper) text(s string) string {
	b := make([]byte, 0, 2*len(s))
	for _, r := range s {
		switch at := strings.IndexRune(e.short, r); {
		case at >= 0:
			b = append(b, '\\', e.letters[at])
		case e.plain(r):
			b = utf8.AppendRune(b, r)
		default:
			b = e.escape(b, r)
		}
	}
	return string(b)
}

var (
	// dotNet escapes like .NET's System.Text.Json.
	dotNet = escaper{"\b\t\n\f\r\\", `btnfr\`, func(r rune) bool {
		return isPrintableASCII(r) && !strings.ContainsRune("\"&'+<>`", r)
	}, units("X")}
	// escapeASCII escapes the non-ASCII characters in text that is already JSON.
	escapeASCII = escaper{plain: func(r rune) bool { return r < 0x7f }, escape: units("x")}

	// python escapes like Python's repr, except for quotes. pythonASCII escapes non-ASCII
	// characters as well.
	python      = escaper{"\t\n\r\\", `tnr\`, func(r rune) bool { return isPrintableASCII(r) || r > 0x7f && unicode.IsPrint(r) }, sized("x", "x")}
	pythonASCII = escaper{"\t\n\r\\", `tnr\`, isPrintableASCII, sized("x", "x")}
	javaScript  = escaper{"\t\n\r\\", `tnr\`, func(r rune) bool { return isPrintableASCII(r) || isShown(r) }, sized("X", "x")}

	// libYAML escapes like libyaml between double quotes, for ASCII output. yamlNames replaces its
	// remaining escapes.
	libYAML = escaper{"\x00\a\b\t\n\v\f\r\x1b\"\\", `0abtnvfre"\`, isPrintableASCII, sized("X", "X")}
)

func isPrintableASCII(r rune) bool { return r >= ' ' && r < 0x7f }

// isShown reports whether bash and JavaScript print the non-ASCII character r unescaped.
func isShown(r rune) bool { return r >= 0xa0 }

// units returns a function that escapes UTF-16 code units as \u and four digits of the given case.
func units(digits string) func([]byte, rune) []byte {
	return func(b []byte, r rune) []byte {
		for _, unit := range utf16.Encode([]rune{r}) {
			b = fmt.Appendf(b, `\u%04`+digits, unit)
		}
		return b
	}
}

// sized returns a function that escapes with as many digits as a character needs. small is the case
// of the digits after \x, and large that after \u and \U.
func sized(small, large string) func([]byte, rune) []byte {
	return func(b []byte, r rune) []byte {
		switch {
		case r <= 0xff:
			return fmt.Appendf(b, `\x%02`+small, r)
		case r <= 0xffff:
			return fmt.Appendf(b, `\u%04`+large, r)
		}
		return fmt.Appendf(b, `\U%08`+large, r)
	}
}

func languageForms(s string) []string {
	inner := func(q string) string { return q[1 : len(q)-1] }
	all := []string{
		inner(strconv.Quote(s)), inner(strconv.QuoteToASCII(s)),
		strings.ReplaceAll(s, "'", "''"), // YAML, SQL, PowerShell
		strings.ReplaceAll(s, `"`, `""`), // CSV
		powerShell.Replace(s),            // PowerShell
		shellDouble.Replace(s),           // between double quotes in a shell
		backslashDouble.Replace(s),       // the same in most configuration files
		hcl.Replace(s),                   // HCL
		yamlNames.Replace(libYAML.text(s)),
	}
	// Python escapes bytes like the characters with the same code points.
	octets := make([]rune, len(s))
	for i, c := range []byte(s) {
		octets[i] = rune(c)
	}
	// Python and JavaScript use double quotes if single quotes would need an escape.
	for _, text := range []string{python.text(s), pythonASCII.text(s), javaScript.text(s), pythonASCII.text(string(octets))} {
		all = append(all, text, strings.ReplaceAll(text, "'", `\'`))
	}
	return all
}

func shellForms(s string) []string {
	return []string{
		strings.ReplaceAll(s, "'", `'\''`),  // "set -x", ${name@Q}
		strings.ReplaceAll(s, "'", `'"'"'`), // Python's shlex
		backslashes(s),
		dollarQuoted(s, false), dollarQuoted(s, true),
	}
}

// backslashes returns s as printed by bash's printf %q.
func backslashes(s string) string {
	var b strings.Builder
	for i, r := range s {
		if strings.ContainsRune(" \t!\"$&'()*,;<>?[\\]^`{|}", r) || i == 0 && (r == '#' || r == '~') ||
			r == '~' && strings.ContainsRune("=:", rune(s[i-1])) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// dollarQuoted returns s escaped as bash prints it within $'…'. If ascii is true, it also escapes
// non-ASCII characters, as bash does in the C locale.
func dollarQuoted(s string, ascii bool) string {
	var b strings.Builder
	for i, r := range s {
		size := max(1, utf8.RuneLen(r))
		if r == utf8.RuneError {
			_, size = utf8.DecodeRuneInString(s[i:])
		}
		switch short := strings.IndexRune("\a\b\t\n\v\f\r\x1b'\\", r); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`abtnvfrE'\`[short])
		case isPrintableASCII(r), !ascii && size > 1 && isShown(r):
			b.WriteRune(r)
		default:
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
	}
	return b.String()
}

// markupForms returns s with XML and HTML entities, which differ between encoders.
func markupForms(s string) []string {
	base := xmlText.Replace(s)
	all := []string{base, xmlTextShort.Replace(s)}
	for _, quote := range []string{"&quot;", "&#34;", "&#x22;"} {
		double := strings.ReplaceAll(base, `"`, quote)
		for _, apostrophe := range []string{"'", "&#39;", "&#x27;", "&apos;", "&#039;"} {
			all = append(all, strings.ReplaceAll(double, "'", apostrophe))
		}
	}
	all = append(all, entities(s, "&#34;", "&#39;", "+", "&#%d;")) // Go's html/template
	// Go's encoding/xml, and attributes from other encoders.
	all = append(all, goXML.Replace(base))
	attribute := xmlAttribute.Replace(base)
	all = append(all, attribute, strings.ReplaceAll(attribute, `"`, "&quot;"))
	// .NET's encoders, and encoders with ASCII output.
	for _, format := range []string{"&#%d;", "&#x%X;", "&#x%x;"} {
		all = append(all,
			entities(s, "&quot;", "&#x27;", "+`\u0080-", format),
			entities(s, "&quot;", "&#39;", "\u0080-", format),
			entities(s, "&quot;", "&#x27;", "\u0080-", format),
			entities(s, `"`, "'", "\u0080-", format))
	}
	return all
}

// entities returns s with XML's special characters and those in extra replaced by entities. The
// suffix "\u0080-" stands for all non-ASCII characters.
func entities(s, quote, apostrophe, extra, format string) string {
	all := strings.HasSuffix(extra, "\u0080-")
	extra = strings.TrimSuffix(extra, "\u0080-")
	names := [...]string{"&amp;", "&lt;", "&gt;", quote, apostrophe}
	var b strings.Builder
	for _, r := range s {
		switch named := strings.IndexRune(`&<>"'`, r); {
		case named >= 0:
			b.WriteString(names[named])
		case strings.ContainsRune(extra, r) || all && r >= utf8.RuneSelf:
			fmt.Fprintf(&b, format, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
