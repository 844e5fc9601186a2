package faults

// clockRows are about clocks, which only unit tests can set, about leases of updates, which last longer
// than a row may, and about servers that stop inside a write.
var clockRows = []faultRow{
	{
		phase: inRunning, fault: "the server's clock jumps an hour ahead, or the server was stopped for one", want: kept,
		evidence: "server/deployments.TestSilenceWhileTheServerWasAwayDoesNotCount",
	},
	{
		phase: inRunning, fault: "the server's clock jumps an hour back", want: kept,
		evidence: "server/deployments.TestClockThatGoesBackLosesNoJob",
	},
	{
		phase: inRunning, fault: "the clock of one of two servers is wrong by years", want: kept,
		evidence: "server/deployments.TestReplicaWithAFalseClock",
	},
	{
		phase: inPulumi, fault: "SIGSTOP of the server, or SIGKILL and a later start, for longer than the update's lease", want: kept,
		evidence: "server.TestPauseLongerThanTheUpdateLease",
	},
	{
		phase: inPulumi, fault: "SIGSTOP of one of two servers, then of both, for longer than the update's lease", want: kept,
		evidence: "server.TestPauseOfReplicas",
	},
	{
		phase: inRunning, fault: "SIGSTOP of one of two servers inside a write: the other server's writes wait for 10 s", want: kept,
		evidence: "server.TestPauseInsideAWrite",
	},
	{
		phase: inPulumi, fault: "the database accepts no writes for longer than the update's lease", want: kept,
		evidence: "server.TestDatabaseThatTakesNoWrites",
	},
	{
		phase: inPulumi, fault: "the server's clock is set an hour or a year ahead or back", want: kept,
		evidence: "server/stacks.TestLeaseKeepsWhatWasLeft",
	},
}
