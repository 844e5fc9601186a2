package openid

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/outbound"
	"workflowagent/internal/settings"
	"workflowagent/internal/sys/boundedfile"
)

// Config describes an identity provider.
type Config struct {
	// ID names the provider in URLs, Name on the sign-in page.
	ID, Name string
	// Issuer is the URL that identifies the provider.
	Issuer   string
	ClientID string
	// SecretFile contains the client's secret; "" is a client without a secret.
	SecretFile string
	// Authority is a list of certificates in PEM format that may sign the provider's certificate, in
	// addition to those of the system. AuthorityFile contains it; "" is none.
	Authority, AuthorityFile string
	// Scopes are requested in addition to openid.
	Scopes []string
	// GroupsClaim and LoginClaim are the claims with a user's groups and wanted login.
	GroupsClaim, LoginClaim string
	// AllowDomains, AllowGroups and AllowEveryone state which of the provider's users may sign in.
	AllowDomains, AllowGroups []string
	AllowEveryone             bool
	Roles                     []Role
	Teams                     []Team
}

// Role is a role in an organization for the users of a group, or for all users if the group is "".
type Role struct{ Group, Organization, Role string }

// Team is a role in a team of an organization for the users of a group, or for all users if the group is "".
type Team struct{ Group, Organization, Team, Role string }

const (
	maxFile      = 1 << 20
	maxProviders = 20
)

var idPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,39}$`)

// Load reads the providers from a file. Its errors name the file and the line, and quote no value. With an error, it
// returns what it could read.
func Load(path string) ([]Config, error) {
	text, err := boundedfile.Read(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("reading the sign-in file: %w", err)
	}
	r := reader{file: path}
	list := r.providers(text)
	return list, errors.Join(r.problems...)
}

// reader reads the nodes of a file. It does not decode into structs, because the errors of the YAML
// library quote values, and one of them can be a misplaced secret.
type reader struct {
	file     string
	problems []error
}

func (r *reader) problem(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, fmt.Errorf("%s:%d: %s", r.file, max(n.Line, 1), fmt.Sprintf(format, args...)))
}

func (r *reader) providers(text []byte) (list []Config) {
	var root yaml.Node
	if err := yaml.Load(text, &root); err != nil {
		r.problems = append(r.problems, fmt.Errorf("%s:%d: is not valid YAML: check the indentation, quotes and colons around this line", r.file, settings.ErrorLine(err)))
		return nil
	}
	top := &root
	if root.Kind == yaml.DocumentNode && len(root.Content) > 0 {
		top = root.Content[0]
	}
	lines := map[string]*yaml.Node{}
	r.mapping(top, map[string]func(*yaml.Node){"providers": func(n *yaml.Node) {
		r.sequence("providers", n, func(item *yaml.Node) {
			c := r.provider(item)
			if lines[c.ID] != nil && c.ID != "" {
				r.problem(item, "id: is the id of another provider, too: choose another id")
			}
			lines[c.ID] = item
			list = append(list, c)
		})
	}})
	if len(list) == 0 || len(list) > maxProviders {
		r.problem(top, "providers: has %d entries: list 1 to %d providers", len(list), maxProviders)
	}
	return list
}

func (r *reader) provider(n *yaml.Node) Config {
	c := Config{Scopes: []string{"profile", "email"}, GroupsClaim: "groups", LoginClaim: "preferred_username"}
	r.mapping(n, map[string]func(*yaml.Node){
		"id":                 r.text("id", &c.ID),
		"name":               r.text("name", &c.Name),
		"issuer":             r.text("issuer", &c.Issuer),
		"client_id":          r.text("client_id", &c.ClientID),
		"client_secret_file": r.text("client_secret_file", &c.SecretFile),
		"ca_certificate_file": func(n *yaml.Node) {
			var path string
			if r.text("ca_certificate_file", &path)(n); path != "" {
				c.AuthorityFile = r.path(path)
				c.Authority = r.authority(n, c.AuthorityFile)
			}
		},
		"scopes":         r.texts("scopes", &c.Scopes),
		"groups_claim":   r.text("groups_claim", &c.GroupsClaim),
		"login_claim":    r.text("login_claim", &c.LoginClaim),
		"allow_domains":  r.texts("allow_domains", &c.AllowDomains),
		"allow_groups":   r.texts("allow_groups", &c.AllowGroups),
		"allow_everyone": r.truth("allow_everyone", &c.AllowEveryone),
		"roles": func(n *yaml.Node) {
			r.sequence("roles", n, func(item *yaml.Node) { c.Roles = append(c.Roles, r.role(item)) })
		},
		"teams": func(n *yaml.Node) {
			r.sequence("teams", n, func(item *yaml.Node) { c.Teams = append(c.Teams, r.team(item)) })
		},
	})
	c.Name = cmp.Or(c.Name, c.ID)
	if c.SecretFile != "" {
		c.SecretFile = r.path(c.SecretFile)
	}
	r.check(n, c)
	return c
}

// path returns the path of a file, which is relative to the sign-in file.
func (r *reader) path(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(r.file), path)
}

func (r *reader) authority(n *yaml.Node, path string) string {
	text, err := boundedfile.Read(path, maxFile)
	if err == nil {
		err = outbound.CheckAuthority(string(text))
	}
	if err != nil {
		r.problem(n, "ca_certificate_file: %v", err)
		return ""
	}
	return string(text)
}

func (r *reader) check(n *yaml.Node, c Config) {
	if !idPattern.MatchString(c.ID) {
		r.problem(n, "id: is missing or not valid: use up to 40 lower-case letters, digits and '-'")
	}
	if c.ClientID == "" {
		r.problem(n, "client_id: is missing: register this server at the provider")
	}
	if err := outbound.CheckBase(c.Issuer); err != nil {
		r.problem(n, "issuer: %v", err)
	}
	if c.SecretFile != "" {
		if _, err := readSecret(c.SecretFile); err != nil {
			r.problem(n, "client_secret_file: %v", err)
		}
	}
	if len(c.AllowDomains) == 0 && len(c.AllowGroups) == 0 && !c.AllowEveryone {
		r.problem(n, "says not who may sign in: set allow_domains, allow_groups, or allow_everyone: true")
	}
	for i, domain := range c.AllowDomains {
		c.AllowDomains[i] = strings.ToLower(domain)
		if domain == "" || strings.ContainsAny(domain, "@*/ ") {
			r.problem(n, "allow_domains: has an entry that is not a domain: write domains as example.com")
		}
	}
	if slices.Contains(c.AllowGroups, "") {
		r.problem(n, "allow_groups: has an empty entry: write the name of a group")
	}
}

func (r *reader) role(n *yaml.Node) (role Role) {
	r.mapping(n, map[string]func(*yaml.Node){
		"group":        r.text("group", &role.Group),
		"organization": r.text("organization", &role.Organization),
		"role":         r.text("role", &role.Role),
	})
	if role.Organization == "" {
		r.problem(n, "organization: is missing: name the organization of the role")
	}
	if !slices.Contains(identity.Roles(), role.Role) {
		r.problem(n, "role: is missing or unknown: use one of %s", strings.Join(identity.Roles(), ", "))
	}
	return role
}

func (r *reader) team(n *yaml.Node) Team {
	team := Team{Role: identity.RoleMember}
	r.mapping(n, map[string]func(*yaml.Node){
		"group":        r.text("group", &team.Group),
		"organization": r.text("organization", &team.Organization),
		"team":         r.text("team", &team.Team),
		"role":         r.text("role", &team.Role),
	})
	if team.Organization == "" {
		r.problem(n, "organization: is missing: name the organization of the team")
	}
	if team.Team == "" {
		r.problem(n, "team: is missing: name a team of the organization")
	}
	if team.Role != identity.RoleMember && team.Role != identity.RoleAdmin {
		r.problem(n, "role: is unknown: use %s or %s", identity.RoleMember, identity.RoleAdmin)
	}
	return team
}

func (r *reader) mapping(n *yaml.Node, keys map[string]func(*yaml.Node)) {
	if n.Kind != yaml.MappingNode {
		r.problem(n, "is not a list of keys: write lines of the form key: value")
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		read, ok := keys[key.Value]
		switch {
		case !ok:
			r.problem(key, "%s: is unknown: the keys here are %s", settings.PrintableKey(key.Value), strings.Join(slices.Sorted(maps.Keys(keys)), ", "))
		case seen[key.Value]:
			r.problem(key, "%s: is set a second time: remove one of them", key.Value)
		default:
			read(value)
		}
		seen[key.Value] = true
	}
}

func (r *reader) sequence(key string, n *yaml.Node, each func(*yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.problem(n, "%s: is not a list: begin each entry with a dash", key)
		return
	}
	for _, item := range n.Content {
		each(item)
	}
}

func (r *reader) text(key string, to *string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		if n.Kind != yaml.ScalarNode {
			r.problem(n, "%s: is not a text: write one value", key)
			return
		}
		*to = strings.TrimSpace(n.Value)
	}
}

func (r *reader) texts(key string, to *[]string) func(*yaml.Node) {
	return func(n *yaml.Node) {
		*to = nil
		r.sequence(key, n, func(item *yaml.Node) {
			var text string
			r.text(key, &text)(item)
			*to = append(*to, text)
		})
	}
}

func (r *reader) truth(key string, to *bool) func(*yaml.Node) {
	return func(n *yaml.Node) {
		var err error
		if *to, err = strconv.ParseBool(n.Value); err != nil || n.Kind != yaml.ScalarNode {
			r.problem(n, "%s: is not true or false", key)
		}
	}
}

const maxSecret = 4 << 10

// readSecret reads a client's secret. The server reads it at each sign-in, so that it can change.
func readSecret(path string) (string, error) {
	text, err := boundedfile.Read(path, maxSecret)
	if err != nil {
		return "", err
	}
	secret := strings.TrimSpace(string(text))
	if secret == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return secret, nil
}
