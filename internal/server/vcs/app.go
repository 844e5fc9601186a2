package vcs

import (
	"context"
	"errors"
	"time"
)

// Apps is implemented by kinds of forges where an integration can be a separate app. An
// administrator sends a manifest with a browser, and the forge sends the browser back with a code.
type Apps interface {
	// Manifest returns the address of the form that registers an app, and the value of its field
	// "manifest". Owner of the connection is the organization that will own the app; "" is the
	// administrator's own account.
	Manifest(c Connection, a NewApp) (address, manifest string, err error)
	// Exchange returns the app that was registered. The forge accepts each code once.
	Exchange(ctx context.Context, c Connection, code string) (RegisteredApp, error)
	// FindApp returns where the app of a connection is installed on the account Owner.
	FindApp(ctx context.Context, c Connection) (InstalledApp, error)
}

// NewApp is an app that is to be registered.
type NewApp struct {
	Name string
	Home string // address of this server's pages
	Hook string // address for deliveries
	// Active makes the forge send deliveries.
	Active bool
	// Redirect is the address to which the forge sends the browser with a code, and Setup the address
	// after the app was installed.
	Redirect, Setup string
	State           string // returned with the code
}

// RegisteredApp is an app that the forge has registered.
type RegisteredApp struct {
	ID, Name   string
	Owner      string // account
	PrivateKey string // PEM
	Secret     string // of deliveries; "" if it sends none
}

// InstalledApp is where an app is installed.
type InstalledApp struct {
	Installation string // id; "" if the app is not installed
	InstallURL   string // page of the forge that installs the app
}

// ErrNotInstalled means that an app is not installed on an account of the forge yet.
var ErrNotInstalled = errors.New("the GitHub App is not installed yet: install it at the forge")

// Redeliverer reads the deliveries that the forge could not hand over. A client that has none returns
// none.
type Redeliverer interface {
	// Undelivered returns the oldest deliveries to this integration that failed since a time, oldest
	// first, and the time from which the caller can ask for more. If it equals since, there are none.
	Undelivered(ctx context.Context, since time.Time) ([]Delivery, time.Time, error)
}
