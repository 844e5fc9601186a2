package account

import (
	"net/http"

	"workflowagent/internal/server/api/web"
	"workflowagent/internal/server/console/page"
	"workflowagent/internal/server/console/view"
	"workflowagent/internal/server/identity/signin"
)

func (p *pages) askForPasskey(w http.ResponseWriter, v *page.Visit) error {
	question, err := p.Passkeys.AskToSignIn(v.Context())
	if err != nil {
		return err
	}
	return web.WriteJSON(w, v.R, http.StatusOK, question)
}

func (p *pages) usePasskey(v *page.Visit) (page.Answer, error) {
	next := page.SafeNext(v.Form("next"))
	userID, used, err := p.Passkeys.SignIn(v.Context(), v.Form("state"), v.Form("answer"))
	var proof signin.Proof
	if err != nil {
		err = p.refuse(v, signin.WayPasskey, used.Name, err)
	} else {
		proof, err = p.SignIn.Vouch(v.Context(), userID, signin.WayPasskey, used.Name, v.Address())
	}
	if err != nil {
		return again(err, func(problem string) view.Page { return p.loginPage(v, next, problem) })
	}
	return p.open(v, proof, next)
}

func (p *pages) askForNewPasskey(w http.ResponseWriter, v *page.Visit) error {
	question, err := p.Passkeys.AskToAdd(v.Context(), v.Who.User)
	if err != nil {
		return err
	}
	return web.WriteJSON(w, v.R, http.StatusOK, question)
}

func (p *pages) addPasskey(v *page.Visit) (page.Answer, error) {
	err := p.Passkeys.Add(v.Context(), v.Who.User, v.Form("name"), v.Form("state"), v.Form("answer"))
	return p.changed(v, err)
}

func (p *pages) renamePasskey(v *page.Visit) (page.Answer, error) {
	return p.changed(v, p.Passkeys.Rename(v.Context(), v.Who.User.ID, v.Param("passkey"), v.Form("name")))
}

func (p *pages) removePasskey(v *page.Visit) (page.Answer, error) {
	return p.changed(v, p.Passkeys.Remove(v.Context(), v.Who.User, v.Param("passkey")))
}

// changed answers a change of the user's settings.
func (p *pages) changed(v *page.Visit, err error) (page.Answer, error) {
	return page.Changed(v, err, "/user/settings", p.settingsPage)
}
