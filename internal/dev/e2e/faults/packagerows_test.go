package faults

// packagePlace is the heading of the rows about changes of the server's package.
const packagePlace = "The server's package"

const (
	testServerDeb = "dev/e2e/init.TestInitServerDeb"
	testServerRPM = "dev/e2e/init.TestInitServerRPM"
)

// packageEvidence are rows of which the tests change the package on a machine with systemd.
var packageEvidence = []faultRow{
	{phase: inRunning, fault: "apt upgrades it", want: kept, evidence: testServerDeb},
	{phase: inRunning, fault: "apt downgrades it", want: kept, evidence: testServerDeb},
	{phase: inRunning, fault: "apt reinstalls it", want: kept, evidence: testServerDeb},
	{phase: inRunning, fault: "apt removes it; the job ends; apt installs it", want: kept, evidence: testServerDeb},
	{phase: inRunning, fault: "apt purges it; the job ends; apt installs it", want: kept, evidence: testServerDeb},
	{phase: inRunning, fault: "dnf upgrades it", want: kept, evidence: testServerRPM},
	{phase: inRunning, fault: "dnf removes it; the job ends; dnf installs it", want: kept, evidence: testServerRPM},
}
