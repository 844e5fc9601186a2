package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"

	"workflowagent/internal/checkup"
	"workflowagent/internal/protocol"
	"workflowagent/internal/reach"
	"workflowagent/internal/server/api/clientaddr"
	"workflowagent/internal/server/api/control"
	"workflowagent/internal/server/api/mirror"
	"workflowagent/internal/server/config"
)

// checkServer asks at the address to listen on, past all proxies.
func (e *examination) checkServer(ctx context.Context) checkup.Result {
	listen := e.cfg.Listen
	self, err := mirror.AtListener(e.cfg, e.key)
	if err != nil {
		return fail(addressInvalid, err.Error(), "correct listen")
	}
	defer self.Close()
	err = self.Ready(ctx)
	var status *mirror.StatusError
	switch {
	case isStopped(err):
		r := e.checkFree(ctx)
		if pid := e.runsElsewhere(ctx); r.Finding == string(serverStopped) && pid != 0 {
			e.running = true
			return warn(serverSettings, fmt.Sprintf("a server runs (process %d), but does not listen on %s", pid, listen), "restart the server, because its configuration has changed")
		}
		return r
	case errors.As(err, &status) && status.NotReady():
		e.running = true
		return fail(serverNotReady, listen+": the server is not ready: "+status.Text, "check the server's log; the checks of the database and the disk can name the cause")
	case e.cfg.ACMETerms && mirror.IsTLSRefused(err):
		e.running = true
		return fail(certificateMissing, listen+": a server runs, but has no TLS certificate yet", "look in the server's log for the reason of the ACME authority, such as a name that does not lead to this server")
	case err != nil && e.runsOtherwise(ctx):
		e.running = true
		return warn(serverSettings, listen+": a server is ready, but with other settings for TLS or client_address", "restart the server, because its configuration has changed")
	case err != nil:
		return fail(addressTaken, fmt.Sprintf("%s is used by a program that does not answer as this server: %v", listen, err), "stop that program, or set listen to another address")
	}
	e.running = true
	if len(e.key) == 0 {
		return e.judgePending(ctx, listen+": a server is ready")
	}
	seen, _, _, err := self.Look(ctx)
	if err != nil {
		return fail(serverForeign, fmt.Sprintf("%s %v", listen, err), "stop that server, or restart it if its master key or its version has changed")
	}
	e.self, e.asked = seen, true
	found := fmt.Sprintf("%s: workflow-server %s is ready", listen, seen.Version)
	if seen.Version != e.opts.Version {
		return warn(serverVersion, found+", and this program is "+e.opts.Version, "restart the server if you have upgraded it, or use its own program")
	}
	return e.judgePending(ctx, found)
}

// judgePending checks that the running server has applied its configuration.
func (e *examination) judgePending(ctx context.Context, found string) checkup.Result {
	client, err := e.find(ctx)
	if err != nil {
		return checkup.OK(found) // only the user of the server would learn it
	}
	defer client.Close()
	pending, err := client.Pending(ctx)
	switch {
	case err != nil:
		return checkup.OK(found)
	case pending.Error != "":
		return warn(serverSettings, found+", but could not start again, because it cannot read its configuration: "+pending.Error, "correct the configuration before you restart the server")
	case len(pending.Restart) > 0:
		return warn(serverSettings, found+", but runs with earlier values of "+strings.Join(pending.Restart, ", "), "restart the server, because its configuration has changed")
	}
	return checkup.OK(found)
}

// runsOtherwise reports whether a server is ready that was started before the configuration has changed how
// connections begin.
func (e *examination) runsOtherwise(ctx context.Context) bool {
	for _, secure := range []bool{false, true} {
		for _, source := range []string{clientaddr.Connection, clientaddr.ProxyProtocol} {
			earlier := config.Config{Listen: e.cfg.Listen, ACMETerms: secure, ClientAddress: source, ExternalURL: e.cfg.ExternalURL}
			caller, err := mirror.AtListener(earlier, nil)
			if err != nil {
				continue // the check has reported it
			}
			err = caller.Ready(ctx)
			caller.Close()
			if err == nil {
				return true
			}
		}
	}
	return false
}

// serviceRuntimeDir is the runtime directory of the service.
const serviceRuntimeDir = "/run/" + serviceUser

// runsElsewhere returns the process of a server with the data directory that listens on another address, or 0.
func (e *examination) runsElsewhere(ctx context.Context) int {
	client, err := e.find(ctx)
	if err != nil {
		return 0 // none runs, or only the user of the server would learn it
	}
	defer client.Close()
	return client.About().PID
}

// find finds the running server with the data directory.
func (e *examination) find(ctx context.Context) (*control.Client, error) {
	dirs := []string{e.cfg.DataDir, serviceRuntimeDir}
	if dir := e.cfg.RuntimeDir(); dir != "" {
		dirs = append(dirs, dir)
	}
	return control.Find(ctx, control.Wanted{Version: e.opts.Version, DataDir: e.cfg.DataDir}, dirs...)
}

// isStopped reports whether an error of connecting means that no program listens.
func isStopped(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)
}

// checkFree checks that a server could listen.
func (e *examination) checkFree(ctx context.Context) checkup.Result {
	listen := e.cfg.Listen
	const advice = "start the server; then run doctor again for the checks that need it"
	if strings.HasPrefix(listen, config.UnixPrefix) {
		return warn(serverStopped, "no server listens on "+listen, advice)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	switch {
	case errors.Is(err, os.ErrPermission):
		return fail(addressInvalid, fmt.Sprintf("the doctor's user cannot listen on %s: ports below 1024 need a capability", listen),
			"give the server CAP_NET_BIND_SERVICE, as its systemd unit does, or set listen to a port above 1023")
	case err != nil:
		return fail(addressInvalid, fmt.Sprintf("a server cannot listen on %s: %v", listen, plainNet(err)), "correct listen: use an address of this machine")
	}
	_ = l.Close() // the listener has accepted no connection
	return warn(serverStopped, "no server runs; "+listen+" is free", advice)
}

func plainNet(err error) error {
	if op, isOp := errors.AsType[*net.OpError](err); isOp {
		return op.Err
	}
	return err
}

// healthPath is a path that every server answers.
const healthPath = "/healthz"

// checkDNS traces the complete connection to the external URL. The following checks report parts of
// this trace.
func (e *examination) checkDNS(ctx context.Context) checkup.Result {
	if e.cfg.ExternalURL == "" {
		return checkup.Skip(errNoURL.Error())
	}
	e.way = reach.Try(ctx, e.cfg.ExternalURL+healthPath, reach.Options{CAPEM: e.opts.CAPEM, Proxy: e.opts.Proxy, UserAgent: "workflow-server/" + e.opts.Version})
	if e.way.Failed == reach.StageURL {
		return fail(urlDNS, e.way.Problem, e.way.Advice)
	}
	r := named(urlDNS, checkup.DNS(e.way))
	if e.way.Proxy != "" {
		r.Details = append(r.Details, "reached through the proxy "+e.way.Proxy)
	}
	return r
}

func (e *examination) checkTCP(context.Context) checkup.Result {
	if !e.way.Reached(reach.StageConnect) && !e.running {
		return checkup.Skip("not checked, because no server runs")
	}
	return named(urlConnect, checkup.TCP(e.way))
}

func (e *examination) checkTLS(context.Context) checkup.Result {
	t := e.way
	if strings.HasPrefix(t.URL, "http:") {
		if u, err := url.Parse(t.URL); err == nil && protocol.IsLoopback(u.Host) {
			return checkup.Skip("the URL is plain http on loopback")
		}
		return warn(urlPlain, e.cfg.ExternalURL+" is plain http, so access tokens and secrets cross the network in plain text",
			"set tls_cert_file and tls_key_file, or let a proxy terminate TLS, and set external_url to the https URL")
	}
	r := checkup.TLS(t)
	switch {
	case r.Status == checkup.StatusWarn:
		r = named(urlExpires, r)
	case t.Untrusted && len(t.Certificates) == 1 && t.Certificates[0].Issuer != t.Certificates[0].Subject:
		r = named(urlChain, r)
		r.Advice = "if " + t.Certificates[0].Issuer + " is an intermediate authority, add its certificate after the server's (fullchain.pem); if it is your own, " + ownAuthority
	case t.Untrusted:
		r = named(urlAuthority, r)
		r.Advice = "install a certificate of an authority that clients trust; if it is your own, " + ownAuthority
	case r.Status == checkup.StatusFail:
		r = named(urlTLS, r)
	}
	return r
}

const ownAuthority = "name it to doctor with --ca-certificate-file, to agents with ca_certificate_file, and to the pulumi CLI with SSL_CERT_FILE"

// checkURL checks that the external URL leads to this server.
func (e *examination) checkURL(ctx context.Context) checkup.Result {
	address := e.cfg.ExternalURL
	if e.way.Failed == reach.StageTLS {
		return checkup.Skip("not checked, because of: TLS of the URL")
	}
	if !e.running {
		return checkup.Skip("not checked, because no server runs")
	}
	if e.way.Failed != "" {
		return fail(urlFails, e.way.Problem, e.way.Advice)
	}
	caller, err := mirror.AtURL(address, e.opts.CAPEM, e.key, e.opts.Proxy)
	if err != nil {
		return fail(urlFails, err.Error(), "correct external_url")
	}
	e.atURL = caller
	if len(e.key) == 0 {
		if err := caller.Ready(ctx); err != nil {
			return e.urlResult(address, err, urlForeign)
		}
		return warn(urlUnverified, address+" leads to a workflow-server, but perhaps to another one", "run doctor as root or as the server's user, who can read the master key")
	}
	if e.seen, e.local, e.back, err = caller.Look(ctx); err != nil {
		return e.urlResult(address, err, urlForeign)
	}
	e.proven = true
	if e.asked && e.seen.Instance != e.self.Instance {
		found := fmt.Sprintf("%s leads to the server on %s (%s), not to the one at %s", address, e.seen.Host, e.seen.Version, e.cfg.Listen)
		if e.facts.Major == 0 {
			return fail(urlOther, found, "correct DNS or the proxy, or stop the other server: it has a copy of this one's master key")
		}
		return checkup.OK(found, "servers that share a database can answer for each other")
	}
	found := fmt.Sprintf("%s leads to this server in %d ms", address, e.way.Took.Milliseconds())
	if u, err := url.Parse(address); err == nil && protocol.IsLoopback(u.Host) {
		return warn(urlLoopback, found+", but only from this machine", "before you create the first stack, set external_url to the URL that clients use: stacks store it")
	}
	return checkup.OK(found)
}

// urlResult returns the result for a URL that does not lead to this server.
func (e *examination) urlResult(address string, err error, foreign finding) checkup.Result {
	var status *mirror.StatusError
	switch {
	case errors.As(err, &status) && status.Location != "":
		return fail(urlRedirects, fmt.Sprintf("%s %v", address, err), "set external_url to the URL after the redirect: clients do not follow redirects with their tokens")
	case errors.As(err, &status) && status.ByServer():
		return fail(urlFails, fmt.Sprintf("%s %v, although the server answers at %s", address, err, e.cfg.Listen), "correct the address of the server in the proxy's configuration, and check the proxy's log")
	case errors.As(err, &status), errors.Is(err, mirror.ErrForeign):
		return fail(foreign, fmt.Sprintf("%s %v, not by this server", address, err), "correct DNS, or the proxy's rules for this host and for all paths")
	}
	return fail(urlFails, fmt.Sprintf("%s: %v", address, err), "check the proxy and its log")
}

// checkConsole checks that the console's URL leads to this server.
func (e *examination) checkConsole(ctx context.Context) checkup.Result {
	address := string(e.cfg.Console())
	var hint []string
	if !e.cfg.Console().Derived(e.cfg.ExternalURL) {
		hint = append(hint, "users of the pulumi CLI set PULUMI_CONSOLE_DOMAIN="+e.cfg.Console().Domain())
	}
	if address == e.cfg.ExternalURL || !e.proven {
		return checkup.OK("the console is at the same URL", hint...)
	}
	caller, err := mirror.AtURL(address, e.opts.CAPEM, e.key, e.opts.Proxy)
	if err != nil {
		return fail(consoleFails, err.Error(), "correct console_url")
	}
	defer caller.Close()
	if _, _, _, err := caller.Look(ctx); err != nil {
		r := e.urlResult(address, err, consoleForeign)
		if r.Finding != string(consoleForeign) {
			r.Finding = string(consoleFails)
		}
		return r
	}
	return checkup.OK(address+" leads to this server", hint...)
}

// checkClient compares what the proxy in front sends with what the server expects.
func (e *examination) checkClient(context.Context) checkup.Result {
	s, source := e.seen, e.cfg.ClientAddress
	switch {
	case !e.proven:
		return checkup.Skip("not checked, because of: URL")
	case e.way.Proxy != "":
		return checkup.Skip("not checked, because the environment's proxy " + e.way.Proxy + " is in between")
	case s.Connection == e.local && source == clientaddr.ProxyProtocol:
		return checkup.OK("the proxy states the client's address: " + s.Client)
	case s.Connection == e.local && source == clientaddr.Connection:
		return checkup.OK("no proxy is in front; the client's address is " + s.Client)
	case s.Connection == e.local:
		return warn(clientBypass, "the URL leads straight to the server, although client_address is "+source,
			"if no proxy is in front, remove client_address and trusted_proxies; otherwise let only the proxy reach "+e.cfg.Listen)
	case source == clientaddr.Connection:
		return warn(clientProxy, fmt.Sprintf("the server sees the address %s for a request from %s: with a proxy in front, every client has the proxy's", s.Client, clientaddr.WithoutPort(e.local)),
			"set trusted_proxies to the addresses of the proxy, and client_address to what it sends ("+sends(s)+")")
	case source == clientaddr.ProxyProtocol:
		return checkup.OK("the proxy states the client's address: " + s.Client)
	case !s.Trusted:
		return warn(clientUntrusted, "the proxy has the address "+clientaddr.WithoutPort(s.Connection)+", which is not in trusted_proxies, so every client has that address",
			"add it to trusted_proxies")
	}
	return e.checkStated()
}

// checkStated checks the header in which a trusted proxy states the client's address.
func (e *examination) checkStated() checkup.Result {
	s, source := e.seen, e.cfg.ClientAddress
	entries := statedBy(s, source)
	switch {
	case len(entries) == 0:
		return fail(clientNoHeader, "the proxy does not send "+source+", which client_address expects",
			"let the proxy send the header, or set client_address to what it sends ("+sends(s)+"); docs/tls.md has configurations")
	case entries[len(entries)-1] == clientaddr.WithoutPort(e.local):
		return checkup.OK("the proxy states the client's address: " + entries[len(entries)-1])
	case mirror.IsForged(s.Client):
		return fail(clientForged, "a client can forge its address: the server believed one that the doctor made up",
			"let the proxy append the client's address to "+source+", or replace the header; and list all proxies, but no clients, in trusted_proxies")
	case s.Client == clientaddr.WithoutPort(s.Connection):
		return warn(clientNoHeader, "the proxy's "+source+" does not state the client's address, so every client has the address "+s.Client+" of the proxy",
			"let the proxy append the client's address to the header; docs/tls.md has configurations")
	}
	return checkup.OK("the proxy states the client's address: " + s.Client)
}

// statedBy returns the entries of the header that is the source of clients' addresses.
func statedBy(s mirror.Seen, source string) []string {
	values := s.ForwardedFor
	if source == clientaddr.Forwarded {
		values = s.Forwarded
	}
	var entries []string
	for entry := range strings.SplitSeq(strings.Join(values, ","), ",") {
		if entry = strings.Trim(strings.TrimPrefix(strings.TrimSpace(entry), "for="), `"`); entry != "" {
			entries = append(entries, entry)
		}
	}
	return entries
}

// sends returns in which header the proxy states the client's address, as a value of client_address.
func sends(s mirror.Seen) string {
	for _, source := range []string{clientaddr.XForwardedFor, clientaddr.Forwarded} {
		if slices.ContainsFunc(statedBy(s, source), func(entry string) bool { return !mirror.IsForged(entry) }) {
			return source
		}
	}
	return "none of the headers yet"
}

// checkHeaders checks that the proxy passes headers in both directions, and the host.
func (e *examination) checkHeaders(context.Context) checkup.Result {
	if !e.proven {
		return checkup.Skip("not checked, because of: URL")
	}
	u, err := url.Parse(e.cfg.ExternalURL)
	if err != nil {
		return checkup.Skip("external_url is not a URL")
	}
	switch {
	case !e.seen.Header || !e.back:
		return fail(headersRemoved, "the proxy removes headers whose names begin with X-Workflow-, which agents and runners need", "let the proxy pass all headers in both directions")
	case e.seen.RequestHost != u.Host && e.seen.RequestHost != u.Hostname():
		return warn(headerHost, fmt.Sprintf("the proxy changes the host of requests to %s", e.seen.RequestHost), "let the proxy keep the header Host, as with nginx: proxy_set_header Host $host")
	}
	return checkup.OK("the host and the headers of agents arrive, in both directions")
}

func (e *examination) checkStreams(ctx context.Context) checkup.Result {
	if !e.proven {
		return checkup.Skip("not checked, because of: URL")
	}
	switch atOnce, err := e.atURL.Stream(ctx); {
	case err != nil:
		return fail(streamsBuffered, fmt.Sprintf("a stream of events failed: %v", err), "let the proxy pass streams (text/event-stream), and wait at least 60 s for a response")
	case !atOnce:
		return warn(streamsBuffered, "the proxy holds back the events of a stream, so that pages and logs do not change while you watch", "turn off the buffering of responses in the proxy, as with nginx: proxy_buffering off")
	}
	return checkup.OK("events arrive when the server sends them")
}

func (e *examination) checkBodies(ctx context.Context) checkup.Result {
	if !e.proven {
		return checkup.Skip("not checked, because of: URL")
	}
	err := e.atURL.Upload(ctx, mirror.MaxBody)
	var status *mirror.StatusError
	switch {
	case errors.As(err, &status) && status.TooLarge():
		return fail(bodiesRefused, "the proxy refuses request bodies of 64 MiB, which the states of large stacks need", "raise the limit in the proxy, as with nginx: client_max_body_size 64m")
	case ctx.Err() != nil:
		return checkup.Skip("the connection is too slow to send 64 MiB in the time of this check")
	case err != nil:
		return fail(bodiesRefused, fmt.Sprintf("sending a request body of 64 MiB failed: %v", err), "check the limits of the proxy, and its log")
	}
	return checkup.OK("a request body of 64 MiB arrives")
}
