package page

import (
	"net"
	"net/http"
	"net/url"
	"strings"
)

// contentPolicy permits only files of this site, and HTML from text only in the policy "console".
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types console"

// protect is middleware that sets the security headers and rejects requests from other sites that
// could change something.
func (s *Site) protect(next http.Handler) http.Handler {
	guard := http.NewCrossOriginProtection()
	if u, err := url.Parse(s.opts.URL); err == nil && u.Host != "" {
		// A proxy might change Host.
		_ = guard.AddTrustedOrigin(u.Scheme + "://" + u.Host)
	}
	guard.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, _ := s.visitor(r)
		s.problem(w, v, http.StatusForbidden, "The request came from another site. Open the console's page and use its form.", false)
	}))
	guarded := guard.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), payment=()")
		h.Set("Cache-Control", "no-store")
		guarded.ServeHTTP(w, r)
	})
}

// Secure reports whether browsers keep Secure cookies of this site: it uses https or loopback.
func (s *Site) Secure() bool {
	u, err := url.Parse(s.opts.URL)
	if err != nil {
		return false
	}
	if u.Scheme == "https" || u.Hostname() == "localhost" {
		return true
	}
	ip := net.ParseIP(u.Hostname())
	return ip != nil && ip.IsLoopback()
}

const sessionCookie = "session"

// cookieName returns the full name of a cookie. The prefix lets browsers reject the cookie of another
// host or path. Browsers send cookies to all ports of a host, so the port keeps the sessions of two servers on one host
// apart.
func (s *Site) cookieName(name string) string {
	if u, err := url.Parse(s.opts.URL); err == nil && u.Port() != "" {
		name += "-" + u.Port()
	}
	if s.Secure() {
		return "__Host-" + name
	}
	return name
}

func wantsStream(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

func wantsJSON(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "application/json")
}
