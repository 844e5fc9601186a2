package api

import (
	"time"

	"workflowagent/internal/server/store"
)

// userInfo is how people appear beside what they did.
type userInfo struct {
	Name        string `json:"name"`
	GithubLogin string `json:"githubLogin"`
	AvatarURL   string `json:"avatarUrl"`
	Email       string `json:"email,omitempty"`
}

// userInfoOf describes a user; the zero user is an organization's token.
func userInfoOf(u store.User) userInfo {
	if u.Login == "" {
		return userInfo{Name: "Organization token", GithubLogin: "organization-token"}
	}
	return userInfo{Name: u.Name, GithubLogin: u.Login, Email: u.Email}
}

// unix writes a time as Unix seconds, 0 for none.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// stamp writes a time as the public API does where it uses neither RFC 3339
// nor Unix seconds.
func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// rfc3339 writes a time as the public API's date-time.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
