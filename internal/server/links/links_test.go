package links

import "testing"

func TestConsoleOf(t *testing.T) {
	for _, tt := range []struct {
		api, console, domain string
		derived              bool
	}{
		{"https://api.example.com", "https://app.example.com", "app.example.com", true},
		{"https://api.example.com:8443", "https://app.example.com:8443", "app.example.com:8443", true},
		{"https://pulumi.example.com", "https://pulumi.example.com", "pulumi.example.com", false},
		{"http://127.0.0.1:8800", "http://127.0.0.1:8800", "127.0.0.1:8800", false},
		{"http://localhost:8080", "http://localhost:8080", "localhost:8080", false},
		{"https://my.api.example.com", "https://my.api.example.com", "my.api.example.com", false},
	} {
		c := Of(tt.api)
		if string(c) != tt.console || c.Domain() != tt.domain || c.Derived(tt.api) != tt.derived {
			t.Errorf("%s: console %s, domain %s, derived %v; want %s, %s, %v", tt.api, c, c.Domain(), c.Derived(tt.api), tt.console, tt.domain, tt.derived)
		}
	}
	if Console("https://console.example.com").Derived("https://api.example.com") {
		t.Error("a console at an unrelated address is derived")
	}
}

func TestPages(t *testing.T) {
	c := Console("https://app.example.com")
	for got, want := range map[string]string{
		c.Stack("acme", "web", "prod"):              "https://app.example.com/acme/web/prod",
		c.Update("acme", "web", "prod", 7):          "https://app.example.com/acme/web/prod/updates/7",
		c.Preview("acme", "web", "prod", "a-b"):     "https://app.example.com/acme/web/prod/previews/a-b",
		c.Deployment("acme", "web", "prod", 3):      "https://app.example.com/acme/web/prod/deployments/3",
		c.Stack("acme", "a/b?c#d", "../prod %"):     "https://app.example.com/acme/a%2Fb%3Fc%23d/..%2Fprod%20%25",
		Console("").Deployment("acme", "w", "p", 1): "",
	} {
		if got != want {
			t.Errorf("the URL is %q, want %q", got, want)
		}
	}
}

func TestReserved(t *testing.T) {
	for name, want := range map[string]bool{
		"api": true, "API": true, "user": true, "-": true, "-x": true, "login": true, "cli-login": true,
		"acme": false, "apis": false, "admin": false, "organization": false,
	} {
		if Reserved(name) != want {
			t.Errorf("Reserved(%q) = %v", name, !want)
		}
	}
}
