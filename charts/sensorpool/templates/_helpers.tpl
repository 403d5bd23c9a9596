{{- define "sensorpool.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{/* The name of all that belongs to this release, with room for a suffix. */}}
{{- define "sensorpool.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "sensorpool.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sensorpool.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Labels by which pods are found. Takes a dict of root and component. */}}
{{- define "sensorpool.selector" -}}
app.kubernetes.io/name: {{ include "sensorpool.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "sensorpool.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{ include "sensorpool.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sensorpool.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "sensorpool.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sensorpool.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* A variable of a URL: out of the Secret that is named, or out of ours. Takes a dict of root, variable, given, secret. */}}
{{- define "sensorpool.urlVariable" -}}
{{- if .given.existingSecret.name }}
- name: {{ .variable }}
  valueFrom: {secretKeyRef: {name: {{ .given.existingSecret.name | quote }}, key: {{ .given.existingSecret.key | quote }}}}
{{- else if .given.url }}
- name: {{ .variable }}
  valueFrom: {secretKeyRef: {name: {{ .secret | quote }}, key: {{ .given.existingSecret.key | quote }}}}
{{- end }}
{{- end -}}

{{/*
The variables of a process of the pool. Takes a dict of root and secret; and of what this process needs: database, its
values; redis, if true; airflow, if true: Airflow's own database and its key, to read connections.
*/}}
{{- define "sensorpool.environment" -}}
{{- $values := .root.Values -}}
{{- if .database -}}
{{- include "sensorpool.urlVariable" (dict "variable" "SENSORPOOL_DATABASE_URL" "given" .database "secret" .secret) -}}
{{- end -}}
{{- if .redis -}}
{{- include "sensorpool.urlVariable" (dict "variable" "SENSORPOOL_REDIS_URL" "given" $values.redis "secret" .secret) -}}
{{- include "sensorpool.urlVariable" (dict "variable" "SENSORPOOL_BROKER_URL" "given" $values.broker "secret" .secret) -}}
{{- end -}}
{{- with $values.database.schema }}
- {name: SENSORPOOL_DATABASE_SCHEMA, value: {{ . | quote }}}
{{- end }}
{{- range $name, $value := $values.settings }}
- name: {{ printf "SENSORPOOL_%s" (upper $name) }}
{{- if kindIs "slice" $value }}
  value: {{ join "," $value | default "," | quote }}
{{- else if kindIs "map" $value }}
  value: {{ toJson $value | quote }}
{{- else if kindIs "float64" $value }}
  value: {{ if eq (floor $value) $value }}{{ printf "%.0f" $value | quote }}{{ else }}{{ $value | quote }}{{ end }}
{{- else }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- if $values.airflow.enabled }}
- {name: AIRFLOW_HOME, value: {{ $values.airflow.home | quote }}}
{{- if .airflow }}
- name: AIRFLOW__DATABASE__SQL_ALCHEMY_CONN
  valueFrom: {secretKeyRef: {name: {{ $values.airflow.metadataSecret | quote }}, key: connection}}
- name: AIRFLOW__CORE__FERNET_KEY
  valueFrom: {secretKeyRef: {name: {{ $values.airflow.fernetKeySecret | quote }}, key: fernet-key}}
{{- end }}
{{- end }}
{{- with $values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What all containers may write to, and read of Airflow. */}}
{{- define "sensorpool.volumeMounts" -}}
- {name: tmp, mountPath: /tmp}
{{- if .Values.airflow.enabled }}
- {name: airflow-config, mountPath: {{ .Values.airflow.home }}/airflow.cfg, subPath: airflow.cfg, readOnly: true}
- {name: tmp, mountPath: {{ .Values.airflow.home }}/logs, subPath: logs}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "sensorpool.volumes" -}}
- {name: tmp, emptyDir: {sizeLimit: {{ .Values.tmpSize }}}}
{{- if .Values.airflow.enabled }}
- {name: airflow-config, configMap: {name: {{ .Values.airflow.configMap | quote }}}}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* What pods have in common. Takes a dict of root and the component's values. */}}
{{- define "sensorpool.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true  # its first process reaps what a poke leaves behind
securityContext: {{- toYaml .root.Values.podSecurityContext | nindent 2 }}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $name := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" }}
{{- with index $.values $name }}
{{ $name }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* A wrong set of values is refused with a line. */}}
{{- define "sensorpool.check" -}}
{{- $v := .Values -}}
{{- if not (or $v.database.existingSecret.name $v.database.url) -}}
{{- fail "name the database: database.existingSecret.name, the Secret that has its URL" -}}
{{- end -}}
{{- if not (or $v.redis.existingSecret.name $v.redis.url) -}}
{{- fail "name the Redis: redis.existingSecret.name, the Secret that has its URL" -}}
{{- end -}}
{{- range $name := list "database_url" "redis_url" "broker_url" "on_settled_broker_url" "web_token" "wake_token" -}}
{{- if hasKey $v.settings $name -}}
{{- fail (printf "settings.%s is a secret: give it by extraEnv, from a Secret that has it" $name) -}}
{{- end -}}
{{- end -}}
{{- if and (hasKey $v.settings "sensors_enabled") (not $v.settings.sensors_enabled) -}}
{{- fail "settings.sensors_enabled is empty, which would enable the default classes: name at least one class" -}}
{{- end -}}
{{- if ne $v.web.ingress.path "/" -}}
{{- fail "web.ingress.path must be /: the pages have no path of their own; give them a host" -}}
{{- end -}}
{{- range $name := list "database_schema" "metrics_host" "metrics_port" -}}
{{- if hasKey $v.settings $name -}}
{{- fail (printf "settings.%s has a value of its own in this chart: database.schema, worker.metricsPort" $name) -}}
{{- end -}}
{{- end -}}
{{- if and $v.web.enabled (not $v.web.token.existingSecret) -}}
{{- fail "name the Secret that has the token of the pages: web.token.existingSecret" -}}
{{- end -}}
{{- if and $v.web.ingress.enabled (not $v.web.ingress.host) -}}
{{- fail "name the host of the pages: web.ingress.host" -}}
{{- end -}}
{{- end -}}
