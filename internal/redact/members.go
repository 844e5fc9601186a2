package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"net/url"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"workflowagent/internal/guard"
)

// A program that reads a structured secret, such as the JSON of a service account, prints its members
// one by one. So the members that are secret themselves are masked, too. The others, such as a region,
// must stay readable in the log.

const (
	// minShape is the length from which a member counts as secret without a name that suggests it.
	minShape = 20

	maxMembers  = 4096 // of a secret
	maxNesting  = 6    // of structures within the text of members
	minEncoded  = 16   // shorter text is not decoded, because words are valid base64
	maxMemberOf = 128 << 10
)

var (
	secretMember = regexp.MustCompile(`(?i)secret|token|passw|pwd|passphrase|credential|private|signature|auth|.key$|key[-_]?data$`)
	// plainMember matches the names of members that describe a secret or a place.
	plainMember = regexp.MustCompile(`(?i)(type|name|ur[il]|expir.*|ttl|policy|source|kind|version|format|algorithm|scopes?)$`)
	placeMember = regexp.MustCompile(`(?i)^(.*[-_.])?(type|project(_?id)?|(default_?|aws_?)?region|zone|location|domain|universe_domain|host|hostname|server|endpoint|bucket|database|dbname|kind|apiversion)$`)
	setting     = regexp.MustCompile(`^\s*(?:export\s+)?([^\s=;#\[][^=;]{0,199}?)\s*=\s*(.*?)\s*$`)
)

// members collects the secret members of a secret.
type members struct {
	found []string
	size  int
}

// secretMembers returns the parts of a structured secret that are secret themselves. It knows JSON,
// YAML, PEM, files of settings such as dotenv, connection URLs and connection strings, also within
// base64 and within the text of members.
func secretMembers(secret string) []string {
	var m members
	if len(secret) <= maxMemberOf {
		m.parse(secret, maxNesting)
	}
	return m.found
}

func (m *members) add(text string) {
	if len(m.found) < maxMembers && m.size+len(text) <= 2*maxMemberOf && !tooShort(text) {
		m.found = append(m.found, text)
		m.size += len(text)
	}
}

// parse finds the members of text. It reports whether text is a structure.
func (m *members) parse(text string, depth int) bool {
	text = strings.TrimSpace(text)
	if depth == 0 || len(text) < MinLength {
		return false
	}
	switch {
	case m.pem(text), m.json(text, depth), m.url(text), m.settings(text, depth), m.yaml(text, depth), m.base64(text, depth):
		return true
	}
	return false
}

// member handles a member of a structure.
func (m *members) member(name, value string, depth int) {
	value = strings.TrimSpace(value)
	found := len(m.found)
	if m.parse(value, depth-1) && len(m.found) > found && !strings.Contains(value, "-----BEGIN") {
		if isURL(value) {
			return // its secret parts are masked
		}
	}
	if isSecretMember(name, value) {
		m.add(value)
		if decoded, ok := decode(value); ok && utf8.ValidString(decoded) {
			m.add(decoded) // as in a Secret of Kubernetes
		}
	}
}

func isSecretMember(name, value string) bool {
	switch {
	case isURL(value):
		return false
	case secretMember.MatchString(name) && !plainMember.MatchString(name):
		return true
	case strings.Contains(value, "-----BEGIN") && strings.Contains(value, "PRIVATE KEY-----"):
		return true
	}
	return len(value) >= minShape && !strings.ContainsFunc(value, unicode.IsSpace) && !placeMember.MatchString(name)
}

func isURL(value string) bool {
	u, err := url.Parse(value)
	return err == nil && u.Scheme != "" && u.Host != ""
}

// pem adds the text of PEM blocks without line breaks. [forms] already returns each line.
func (m *members) pem(text string) bool {
	if !strings.HasPrefix(text, "-----BEGIN ") {
		return false
	}
	block, rest := pem.Decode([]byte(text))
	for ; block != nil; block, rest = pem.Decode(rest) {
		if strings.Contains(block.Type, "PRIVATE KEY") {
			m.add(base64.StdEncoding.EncodeToString(block.Bytes))
		}
	}
	return true
}

func (m *members) json(text string, depth int) bool {
	if text[0] != '{' && text[0] != '[' || !json.Valid([]byte(text)) {
		return false
	}
	// Tokens include members whose names occur twice, of which a map keeps one.
	dec := json.NewDecoder(strings.NewReader(text))
	dec.UseNumber()
	m.jsonValue(dec, "", depth)
	return true
}

// jsonValue handles the next value of valid JSON. Elements of a list have the list's name.
func (m *members) jsonValue(dec *json.Decoder, name string, depth int) {
	token, err := dec.Token()
	if err != nil {
		return
	}
	switch v := token.(type) {
	case json.Delim:
		for dec.More() {
			of := name
			if v == '{' {
				key, err := dec.Token()
				if err != nil {
					return
				}
				of, _ = key.(string)
			}
			m.jsonValue(dec, of, depth)
		}
		_, _ = dec.Token() // the end, which exists in valid JSON
	case string:
		m.member(name, v, depth)
	case json.Number:
		m.member(name, v.String(), depth)
	}
}

func (m *members) yaml(text string, depth int) bool {
	if !strings.Contains(text, ": ") && !strings.Contains(text, ":\n") && !strings.HasPrefix(text, "- ") {
		return false
	}
	structured := false
	dec := yaml.NewDecoder(strings.NewReader(text))
	for {
		// Nodes keep aliases, which could expand to any size.
		var node yaml.Node
		err := guard.Run(func() error { return dec.Decode(&node) }) // the parser panics on some invalid input
		if err != nil || len(node.Content) == 0 {
			return structured
		}
		if root := node.Content[0]; root.Kind == yaml.MappingNode || root.Kind == yaml.SequenceNode {
			structured = true
			m.yamlNode(root, "", depth)
		}
	}
}

func (m *members) yamlNode(node *yaml.Node, name string, depth int) {
	switch node.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			m.yamlNode(node.Content[i+1], node.Content[i].Value, depth)
		}
	case yaml.SequenceNode:
		for _, child := range node.Content {
			m.yamlNode(child, name, depth)
		}
	case yaml.ScalarNode:
		if node.Tag != "!!bool" && node.Tag != "!!null" {
			m.member(name, node.Value, depth)
		}
	}
}

// settings handles lines NAME=value, as in dotenv and INI files, and connection strings with
// semicolons.
func (m *members) settings(text string, depth int) bool {
	lines := strings.Split(text, "\n")
	if len(lines) == 1 && strings.Contains(text, ";") {
		lines = strings.Split(text, ";")
	}
	var pairs [][2]string
	for _, line := range lines {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' || line[0] == '[' && line[len(line)-1] == ']' {
			continue
		}
		parts := setting.FindStringSubmatch(line)
		if parts == nil {
			return false
		}
		pairs = append(pairs, [2]string{parts[1], parts[2]})
	}
	for _, pair := range pairs {
		value := pair[1]
		if len(value) >= 2 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
			value = value[1 : len(value)-1]
			if pair[1][0] == '"' {
				value = strings.NewReplacer(`\n`, "\n", `\"`, `"`, `\\`, `\`).Replace(value)
			}
		}
		m.member(pair[0], value, depth)
	}
	return len(pairs) > 0
}

// url adds the password of a URL and the parameters whose names suggest a secret.
func (m *members) url(text string) bool {
	if strings.ContainsFunc(text, unicode.IsSpace) || !strings.Contains(text, "://") {
		return false
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return false
	}
	if password, ok := u.User.Password(); ok {
		m.add(password)
	} else if u.User != nil && len(u.User.Username()) >= minShape {
		m.add(u.User.Username()) // https://TOKEN@host
	}
	for name, values := range u.Query() {
		for _, value := range values {
			if isSecretMember(name, value) {
				m.add(value)
			}
		}
	}
	return true
}

// base64 handles a structure that is encoded as a whole.
func (m *members) base64(text string, depth int) bool {
	decoded, ok := decode(text)
	if !ok || !isText(decoded) {
		return false
	}
	found := len(m.found)
	if !m.parse(decoded, depth-1) {
		return false
	}
	if len(m.found) > found || strings.Contains(decoded, "PRIVATE KEY-----") {
		m.add(decoded)
	}
	return true
}

// decode decodes base64 in any of its usual forms.
func decode(text string) (string, bool) {
	if len(text) < minEncoded {
		return "", false
	}
	text = strings.TrimRight(stripBreaks(text), "=")
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		if data, err := enc.DecodeString(text); err == nil {
			return string(bytes.TrimSpace(data)), true
		}
	}
	return "", false
}

func isText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && !unicode.IsSpace(r) })
}

var breaks = strings.NewReplacer("\n", "", "\r", "")

// stripBreaks returns s without line breaks.
func stripBreaks(s string) string { return breaks.Replace(s) }
