package page

import (
	"net/http"
	"regexp"
	"strings"
)

// prefetch reports whether a browser requests a page before the visitor asks for it.
func prefetch(r *http.Request) bool { return strings.Contains(r.Header.Get("Sec-Purpose"), "prefetch") }

// effects matches the patterns of routes that record a visit or a read, ask another site, or are about the visitor or the
// server. The rules of the assets name the same pages.
var effects = regexp.MustCompile(`^/(-|user|cli-login|welcome)(/|$)|^/\{org\}/-/(activity|audit|settings/integrations)(/|$)|/(state|raw)$`)
