package store

import "workflowagent/internal/server/store/database"

// definesProvider selects environments whose newest definition contains a text.
const definesProvider = `EXISTS (SELECT 1 FROM environments e
	JOIN environment_revisions r ON r.environment_id = e.id AND r.number = e.last_number
	WHERE r.definition LIKE '%fn::open%' AND `

// EnvironmentsUseIssuer reports whether environments log in to clouds with identity tokens of this server.
func (tx *Tx) EnvironmentsUseIssuer() (bool, error) {
	return database.Scalar[bool](tx.Tx, `SELECT `+definesProvider+`(r.definition LIKE '%aws-login%' OR r.definition LIKE '%gcp-login%'
		OR r.definition LIKE '%azure-login%') AND r.definition LIKE '%oidc%')`)
}

// EnvironmentsUseCustomIssuer reports whether environments have identity tokens with audiences of the users' choice.
func (tx *Tx) EnvironmentsUseCustomIssuer() (bool, error) {
	return database.Scalar[bool](tx.Tx, `SELECT `+definesProvider+`r.definition LIKE '%fn::open::oidc%')`)
}
