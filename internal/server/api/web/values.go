package web

import (
	"time"

	"workflowagent/internal/server/store"
)

// UserInfo describes the user behind an action.
type UserInfo struct {
	Name        string `json:"name"`
	GithubLogin string `json:"githubLogin"`
	AvatarURL   string `json:"avatarUrl"`
	Email       string `json:"email,omitempty"`
}

// UserInfoOf describes a user; the zero user is an organization's token.
func UserInfoOf(u store.User) UserInfo {
	if u.Login == "" {
		return UserInfo{Name: "Organization token", GithubLogin: "organization-token"}
	}
	return UserInfo{Name: u.Name, GithubLogin: u.Login, Email: u.Email}
}

// Unix returns t in Unix seconds, 0 for the zero time.
func Unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// Stamp formats a time as the public API does where it uses neither RFC 3339 nor Unix seconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// RFC3339 formats a time as the public API's date-time.
func RFC3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
