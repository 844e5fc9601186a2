package web

import (
	"time"

	"workflowagent/internal/server/store"
)

// UserInfo describes a user in the form of the public API.
type UserInfo struct {
	Name        string `json:"name"`
	GithubLogin string `json:"githubLogin"`
	AvatarURL   string `json:"avatarUrl"`
	Email       string `json:"email,omitempty"`
}

// UserInfoOf returns the description of a user. The zero user stands for an organization's token.
func UserInfoOf(u store.User) UserInfo {
	if u.Login == "" {
		return UserInfo{Name: "Organization token", GithubLogin: "organization-token"}
	}
	return UserInfo{Name: u.Name, GithubLogin: u.Login, Email: u.Email}
}

// Unix returns t in Unix seconds, or 0 for the zero time.
func Unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// Stamp formats a time in the format that parts of the public API use instead of RFC 3339 or Unix
// seconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05.000") }

// RFC3339 formats a time as a date-time of the public API.
func RFC3339(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// MemberInfo returns the description of a user by the user's fields.
func MemberInfo(login, name, email string) UserInfo {
	return UserInfo{Name: name, GithubLogin: login, Email: email}
}
