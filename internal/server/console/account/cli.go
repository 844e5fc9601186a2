package account

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"time"

	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/fault"
	"workflowagent/internal/server/identity"
	"workflowagent/internal/server/store"
	"workflowagent/internal/termtext"
)

// cliRequest is what "pulumi login" puts into the URL that it opens. All of it is untrusted: any
// page can link here.
type cliRequest struct {
	Port        int
	Nonce       string
	Description string
}

// isNonce reports whether a text has 16 to 128 hexadecimal digits, as the CLI generates.
func isNonce(text string) bool {
	return len(text) >= 16 && len(text) <= 128 && strings.Trim(text, "0123456789abcdef") == ""
}

const (
	minPort, maxPort = 1024, 65535
	maxDescription   = 300
)

func parseCLI(get func(string) string) (cliRequest, error) {
	port, err := strconv.Atoi(get("cliSessionPort"))
	if err != nil || port < minPort || port > maxPort || !isNonce(get("cliSessionNonce")) {
		return cliRequest{}, fault.Invalid("This page belongs to \"pulumi login\", which opens it with a port and a code. Run the command again.")
	}
	return cliRequest{Port: port, Nonce: get("cliSessionNonce"), Description: termtext.OneLine(get("cliSessionDescription"), maxDescription)}, nil
}

func (p *pages) cli(v *page.Visit) (view.Page, error) {
	r, err := parseCLI(v.Query)
	return view.Page{Title: "Log in to the pulumi CLI", Layout: view.Gate, Body: cliForm(r, v.Who.User.Login)}, err
}

func (p *pages) cliLogin(v *page.Visit) (page.Answer, error) {
	r, err := parseCLI(v.Form)
	if err != nil {
		return page.Answer{}, err
	}
	text, _, err := p.Identity.CreateToken(v.Context(), identity.NewTokenSpec{
		Kind: store.PersonalToken, Description: cmp.Or(r.Description, "pulumi login"), UserID: v.Who.User.ID, CreatedBy: v.Who.User.ID,
		Expires: view.Expiry(v.Form("expires"), time.Now()),
	})
	if err != nil {
		return page.Answer{}, err
	}
	if v.Form("elsewhere") != "" {
		return page.Once(view.Page{Title: "Access token", Layout: view.Gate, Body: pasteToken(text)}), nil
	}
	target := "http://127.0.0.1:" + strconv.Itoa(r.Port) + "/?" + url.Values{"accessToken": {text}, "nonce": {r.Nonce}}.Encode()
	return page.Leave(view.Page{Title: "Logging in", Layout: view.Gate, Body: leaving(target)}, target), nil
}

func (p *pages) welcome(v *page.Visit) (view.Page, error) {
	return view.Page{Title: "Logged in", Layout: view.Gate, Body: welcome(v.Who.User.Login)}, nil
}
