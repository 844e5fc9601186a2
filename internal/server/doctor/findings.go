package doctor

import "workflowagent/internal/checkup"

// finding names a problem. Programs and docs/server-troubleshooting.md refer to problems by these
// names, so they do not change.
type finding string

const (
	configInvalid  finding = "config-invalid"
	configWarnings finding = "config-warnings"
	urlMissing     finding = "url-missing"
	fileUnreadable finding = "file-unreadable"

	addressTaken   finding = "address-taken"
	addressInvalid finding = "address-invalid"
	serverStopped  finding = "server-stopped"
	serverNotReady finding = "server-not-ready"
	serverForeign  finding = "server-foreign"
	serverSettings finding = "server-settings"
	serverVersion  finding = "server-version"

	certificateInvalid finding = "certificate-invalid"
	certificateExpired finding = "certificate-expired"
	certificateExpires finding = "certificate-expires"
	certificateNames   finding = "certificate-names"
	certificateMissing finding = "certificate-missing"
	certificateKeyOpen finding = "certificate-key-open"

	dataInvalid  finding = "data-invalid"
	dataOpen     finding = "data-open"
	dataUser     finding = "data-user"
	dataForeign  finding = "data-foreign"
	diskFull     finding = "disk-full"
	keyMissing   finding = "key-missing"
	keyInvalid   finding = "key-invalid"
	keyWrong     finding = "key-wrong"
	clockDiffers finding = "clock-differs"

	databaseUnreachable finding = "database-unreachable"
	databaseRefused     finding = "database-refused"
	databaseMissing     finding = "database-missing"
	databaseTLS         finding = "database-tls"
	databaseStandby     finding = "database-standby"
	databaseFull        finding = "database-full"
	databaseFailed      finding = "database-failed"
	databaseOld         finding = "database-old"
	databasePooler      finding = "database-pooler"
	databaseConnections finding = "database-connections"
	databasePlain       finding = "database-plain"
	databaseSlow        finding = "database-slow"
	rightsMissing       finding = "rights-missing"
	rightsOwner         finding = "rights-owner"
	schemaNewer         finding = "schema-newer"
	schemaOlder         finding = "schema-older"
	restorePaused       finding = "restore-paused"

	backupMissing  finding = "backup-missing"
	backupOverdue  finding = "backup-overdue"
	backupFailed   finding = "backup-failed"
	backupUnsealed finding = "backup-unsealed"

	urlDNS         finding = "url-dns"
	urlConnect     finding = "url-connect"
	urlTLS         finding = "url-tls"
	urlAuthority   finding = "url-authority"
	urlChain       finding = "url-chain"
	urlExpires     finding = "url-expires"
	urlPlain       finding = "url-plain"
	urlLoopback    finding = "url-loopback"
	urlFails       finding = "url-fails"
	urlRedirects   finding = "url-redirects"
	urlForeign     finding = "url-foreign"
	urlOther       finding = "url-other"
	urlUnverified  finding = "url-unverified"
	consoleFails   finding = "console-fails"
	consoleForeign finding = "console-foreign"

	clientProxy     finding = "client-proxy"
	clientForged    finding = "client-forged"
	clientUntrusted finding = "client-untrusted"
	clientNoHeader  finding = "client-no-header"
	clientBypass    finding = "client-bypass"
	headerHost      finding = "header-host"
	headersRemoved  finding = "headers-removed"
	streamsBuffered finding = "streams-buffered"
	bodiesRefused   finding = "bodies-refused"
	issuerFails     finding = "issuer-fails"
	issuerDiffers   finding = "issuer-differs"
	signInFails     finding = "sign-in-fails"

	evaluatorMissing finding = "evaluator-missing"
	evaluatorFails   finding = "evaluator-fails"

	agentsOld finding = "agents-old"
)

// ServerSettings is the finding that a running server has other settings than the configuration.
const ServerSettings = string(serverSettings)

func warn(f finding, found, advice string, details ...string) checkup.Result {
	return named(f, checkup.Warn(found, advice, details...))
}

func fail(f finding, found, advice string, details ...string) checkup.Result {
	return named(f, checkup.Fail(found, advice, details...))
}

// named names the problem of a result, if it has one.
func named(f finding, r checkup.Result) checkup.Result {
	if r.Status == checkup.StatusWarn || r.Status == checkup.StatusFail {
		r.Finding = string(f)
	}
	return r
}
