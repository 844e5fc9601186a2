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

// A replacer is built on first use.
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
	xmlAttribute    = strings.NewReplacer("\t", "&#9;", "\n", "&#10;", "\r", "&#13;")
)

// quoted returns s as quoted or escaped by the languages that tools print.
func quoted(s string) []string {
	all := jsonForms(s)
	all = append(all, languageForms(s)...)
	all = append(all, shellForms(s)...)
	return append(all, markupForms(s)...)
}

// jsonForms returns s as the writers of JSON, JavaScript and YAML escape it.
func jsonForms(s string) []string {
	plain := jsonText(s, false)
	all := []string{
		plain, jsonText(s, true),
		slashes(plain), slashes(escapeASCII(plain, "%04x")), // PHP, and others for script elements
		escapeASCII(plain, "%04x"), // Python
		dotNet(s),
		gson.Replace(plain), // Gson
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

// dotNet returns s as .NET's System.Text.Json escapes it.
func dotNet(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\b\t\n\f\r\\", r); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`btnfr\`[short])
		case r < ' ' || r >= 0x7f || strings.ContainsRune("\"&'+<>`", r):
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04X`, unit)
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeASCII turns non-ASCII characters into UTF-16 \u escapes with the format's digits.
func escapeASCII(s, format string) string {
	var b strings.Builder
	for _, r := range s {
		if r < 0x7f {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u`+format, unit)
		}
	}
	return b.String()
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
		yamlText(s),
	}
	// Python uses double quotes if single ones would need an escape, and so does JavaScript, which
	// writes control characters with capital digits.
	isASCII := func(rune) bool { return false }
	for _, text := range []string{pythonText(s, unicode.IsPrint, "%02x"), pythonText(s, isASCII, "%02x"), pythonText(s, isShown, "%02X")} {
		all = append(all, text, strings.ReplaceAll(text, "'", `\'`))
	}
	var octets strings.Builder
	for _, c := range []byte(s) {
		if isAlphanumeric(c) {
			octets.WriteByte(c)
		} else {
			octets.WriteString(pythonText(string(rune(c)), isASCII, "%02x"))
		}
	}
	return append(all, octets.String(), strings.ReplaceAll(octets.String(), "'", `\'`))
}

// isShown reports which non-ASCII characters bash and JavaScript print unescaped.
func isShown(r rune) bool { return r >= 0xa0 }

// pythonText returns s as repr prints it, without quotes and their escapes. printed selects the
// unescaped non-ASCII characters, and digits formats the others.
func pythonText(s string, printed func(rune) bool, digits string) string {
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\t\n\r\\", r); {
		case short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`tnr\`[short])
		case r >= ' ' && r < 0x7f, r > 0x7f && printed(r):
			b.WriteRune(r)
		case r <= 0xff:
			fmt.Fprintf(&b, `\x`+digits, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// yamlText returns s between double quotes as libyaml writes it for ASCII output.
func yamlText(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch short := strings.IndexRune("\x00\a\b\t\n\v\f\r\x1b\"\\\u0085\u00a0\u2028\u2029", r); {
		case r < utf8.RuneSelf && short >= 0:
			b.WriteByte('\\')
			b.WriteByte(`0abtnvfre"\`[short])
		case r >= ' ' && r < 0x7f:
			b.WriteRune(r)
		case short >= 0:
			b.WriteString(map[rune]string{0x85: `\N`, 0xa0: `\_`, 0x2028: `\L`, 0x2029: `\P`}[r])
		case r <= 0xff:
			fmt.Fprintf(&b, `\x%02X`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			fmt.Fprintf(&b, `\U%08X`, r)
		}
	}
	return b.String()
}

func shellForms(s string) []string {
	return []string{
		strings.ReplaceAll(s, "'", `'\''`),  // "set -x", ${name@Q}
		strings.ReplaceAll(s, "'", `'"'"'`), // Python's shlex
		backslashes(s),
		dollarQuoted(s, false), dollarQuoted(s, true),
	}
}

// backslashes returns s as bash's printf %q prints it.
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

// dollarQuoted returns s as in $'…', bash's form of unprintable text: non-ASCII in the C locale.
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
		case r >= ' ' && r < 0x7f, !ascii && size > 1 && isShown(r):
			b.WriteRune(r)
		default:
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, `\%03o`, c)
			}
		}
	}
	return b.String()
}

// markupForms returns s with XML and HTML entities, which differ between writers.
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
	// Go's encoding/xml, and other writers' attributes.
	all = append(all, goXML.Replace(base))
	attribute := xmlAttribute.Replace(base)
	all = append(all, attribute, strings.ReplaceAll(attribute, `"`, "&quot;"))
	// .NET's encoders, and writers of ASCII.
	for _, format := range []string{"&#%d;", "&#x%X;", "&#x%x;"} {
		all = append(all,
			entities(s, "&quot;", "&#x27;", "+`\u0080-", format),
			entities(s, "&quot;", "&#39;", "\u0080-", format),
			entities(s, "&quot;", "&#x27;", "\u0080-", format),
			entities(s, `"`, "'", "\u0080-", format))
	}
	return all
}

// entities replaces XML's characters and extra by entities; "\u0080-" means all non-ASCII ones.
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
