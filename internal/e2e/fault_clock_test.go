package e2e

// clockRows are about clocks, which only unit tests can set.
var clockRows = []faultRow{
	{
		phase: inRunning, fault: "the server's clock jumps an hour ahead, or the server was away for one", want: kept,
		evidence: "server/deployments.TestSilenceWhileTheServerWasAwayDoesNotCount",
	},
	{
		phase: inRunning, fault: "the server's clock jumps an hour back", want: kept,
		evidence: "server/deployments.TestClockThatGoesBackLosesNoJob",
	},
}
