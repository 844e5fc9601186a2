{{/* Names and selectors of a pool with a name differ from those of all others in its namespace. */}}
{{- define "agent.suffix" -}}
{{- with .Values.pool }}-{{ . }}{{ end -}}
{{- end }}

{{- define "agent.name" -}}
app.kubernetes.io/name: customer-managed-workflow-agent{{ include "agent.suffix" . }}
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
{{ .Values.jobs.namespace | default (printf "%s%s-jobs" .Release.Namespace (include "agent.suffix" .)) }}
{{- end }}

{{- define "agent.secret" -}}
{{ .Values.agent.existingSecretName | default (printf "agent-secret%s" (include "agent.suffix" .)) }}
{{- end }}

{{- define "agent.worker" -}}
{{- with .Values.workerServiceAccount }}
{{- .name }}
{{- if and .create (eq .name "workflow-runner") }}{{ include "agent.suffix" $ }}{{ end }}
{{- end }}
{{- end }}
