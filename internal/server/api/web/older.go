package web

import (
	"context"
	"net/http"
	"slices"
	"strings"
)

// olderKey is the key of the context of requests that [OlderPaths] has routed.
type olderKey struct{}

// Older reports whether a request has the path of older clients, which expect the API of that time.
func Older(r *http.Request) bool { return r.Context().Value(olderKey{}) != nil }

// OlderPaths routes requests with the paths of older clients to today's routes: the calls of
// deployments, and of their settings, began with /api/preview instead of /api/stacks.
func OlderPaths(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path, ok := todaysPath(r.URL.EscapedPath()); ok {
			u := *r.URL
			u.Path, _ = todaysPath(r.URL.Path)
			if u.RawPath != "" {
				u.RawPath = path
			}
			r = r.Clone(context.WithValue(r.Context(), olderKey{}, true))
			r.URL = &u
		}
		next.ServeHTTP(w, r)
	})
}

// previews are the public API's other parts below /api/preview.
var previews = []string{"agents", "environments", "esc", "insights", "registry"}

// todaysPath returns the current form of an older path. ok is false for other paths.
func todaysPath(path string) (today string, ok bool) {
	rest, found := strings.CutPrefix(path, "/api/preview/")
	parts := strings.SplitN(rest, "/", 5)
	if !found || len(parts) < 4 {
		return path, false
	}
	if slices.Contains(previews, parts[0]) {
		return path, false
	}
	stack := "/api/stacks/" + strings.Join(parts[:3], "/")
	below := strings.Join(parts[3:], "/")
	switch {
	case parts[3] == "deployments":
		return stack + "/" + below, true
	case below == "deployment/settings", strings.HasPrefix(below, "deployment/settings/"):
		return stack + "/deployments/settings" + strings.TrimPrefix(below, "deployment/settings"), true
	}
	return path, false
}
