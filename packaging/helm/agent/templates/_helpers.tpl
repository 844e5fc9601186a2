{{- define "agent.name" -}}
app.kubernetes.io/name: customer-managed-workflow-agent
{{- end }}

{{- define "agent.labels" -}}
{{ include "agent.name" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "agent.image" -}}
{{- $tag := printf ":%s" (.Values.image.tag | default .Chart.AppVersion) -}}
{{- with .Values.image.digest }}{{ $tag = printf "@%s" . }}{{ end -}}
{{ .Values.image.repository }}{{ $tag }}
{{- end }}

{{- define "agent.jobs" -}}
{{ .Values.jobs.namespace | default (printf "%s-jobs" .Release.Namespace) }}
{{- end }}

{{- define "agent.secret" -}}
{{ .Values.agent.existingSecretName | default "agent-secret" }}
{{- end }}
