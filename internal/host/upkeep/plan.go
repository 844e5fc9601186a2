package upkeep

import (
	"cmp"
	"errors"
	"net/http"

	"workflowagent/internal/agent/config"
	"workflowagent/internal/agent/status"
	"workflowagent/internal/host/release"
	"workflowagent/internal/host/update"
	"workflowagent/internal/protocol"
)

// plan returns the way in which an agent handles releases. State contains the reason for UpdateOff,
// or the advice for UpdateTells. find returns an error if this installation cannot update itself.
func plan(c *config.Config, version, stage string, finderErr error, find func() error) status.Update {
	off := func(why string) status.Update { return status.Update{Mode: status.UpdateOff, State: why} }
	switch {
	case c.AutoUpdate == config.UpdateOff:
		return off("auto_update is false")
	case c.Agent.SingleRun:
		return off("single_run is true, so the agent exits after one job")
	case finderErr != nil:
		return off(finderErr.Error())
	case release.CheckVersion(version) != nil:
		return off(update.ErrDevelopment.Error())
	}
	err := find()
	command := release.Program + " update"
	if packaged, ok := errors.AsType[*update.PackagedError](err); ok {
		command = packaged.Command
	} else if err != nil {
		return off(err.Error())
	} else if stage != "" {
		return status.Update{Mode: status.UpdateInstalls}
	}
	return status.Update{Mode: status.UpdateTells, State: "update it with: " + command}
}

// NewFinder returns a finder for the configured releases. By default, these are the releases of
// this build's publisher.
func NewFinder(c *config.Config, caPEM []byte, memory string) (*update.Finder, error) {
	keys, err := release.BuiltinKeys()
	if err != nil {
		return nil, err
	}
	return openFinder(c, keys, caPEM, memory)
}

func openFinder(c *config.Config, keys release.Keys, caPEM []byte, memory string) (*update.Finder, error) {
	home := cmp.Or(c.UpdateURL, release.Home())
	if home == "" {
		return nil, errors.New("this build has no release URL: set update_url to the URL of a mirror")
	}
	transport, err := protocol.NewTransport(caPEM)
	if err != nil {
		return nil, err
	}
	return update.Open(update.Options{
		Home: home, Channel: c.UpdateChannel, Keys: keys, Client: &http.Client{Transport: transport}, Memory: memory,
	})
}
