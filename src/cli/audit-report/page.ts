import type { AuditEntry } from '../../audit/contract.ts'
import type { auditReports } from '../../audit/reports/contract.ts'
import type { ReplyOf } from '../../core/endpoint.ts'
import { escapeToOneLine } from '../../core/terminal.ts'
import { escapeHtml } from '../../core/web-page.ts'
import type { Overview } from '../../overview/contract.ts'
import { formatNumber } from '../progress.ts'
import { type Bar, barChart } from './charts.ts'
import { style } from './style.ts'

type Reports = typeof auditReports

/** What the page shows; a report that was not asked for is left out. */
export type ReportData = {
  url: string
  /** Slug, name or id; undefined for everything that the caller may read. */
  org: string | undefined
  from: string | undefined
  to: string | undefined
  madeAt: string
  audit: Overview['audit']
  stats?: ReplyOf<Reports['stats']>
  users?: ReplyOf<Reports['users']>
  security?: ReplyOf<Reports['security']>
  compliance?: ReplyOf<Reports['compliance']>
}

const maxBars = 15
const maxRows = 100

/** Text of the log: names come from people and machines that nobody has to trust. */
const text = (value: string | null | undefined): string => escapeHtml(escapeToOneLine(value ?? '–'))
const time = (instant: string): string => `${instant.slice(0, 19).replace('T', ' ')} UTC`

/** One file that loads nothing, runs no script, and prints. */
export function reportPage(data: ReportData): string {
  const { stats, users, security, compliance } = data
  const sections = [
    stats &&
      charted(
        'By category',
        stats.byCategory.map(({ category, count }) => ({ name: category, count })),
      ),
    users &&
      charted(
        'Most active people',
        users.actionsPerUser.map(({ email, count }) => ({ name: email, count })),
      ),
    security &&
      [
        charted('Sign-ins', [
          { name: 'succeeded', count: security.loginAttempts - security.failedLogins },
          { name: 'failed', count: security.failedLogins },
        ]),
        charted('Security events', barsOf(security.byAction)),
      ].join(''),
    compliance && charted('Compliance events', barsOf(compliance.byAction)),
  ]
  const tables = [
    users && entryTable('Newest actions of people', users.recentActivity),
    security && entryTable('Newest security events', security.recentEvents),
    compliance && entryTable('Newest compliance events', compliance.recentEvents),
  ]
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Audit report · svc</title><style>${style}</style></head><body><main>
<h1>Audit report</h1>
<dl class="about">${about(data)}</dl>
${figures(data)}
<div class="cards">${sections.filter((one) => one !== undefined).join('')}</div>
${tables.filter((one) => one !== undefined).join('\n')}
</main></body></html>
`
}

const barsOf = (byAction: readonly { action: string; count: number }[]): Bar[] =>
  byAction.map(({ action, count }) => ({ name: action, count }))

function about({ url, org, from, to, madeAt, audit }: ReportData): string {
  const period = `${from === undefined ? 'the beginning' : from} to ${to === undefined ? time(madeAt) : to}`
  const lines: [string, string][] = [
    ['Of', org ?? 'everything that the reader may see'],
    ['Period', period],
    ['Made', `${time(madeAt)}, at ${url}`],
    ...(audit ? ([['Log', logSentence(audit)]] satisfies [string, string][]) : []),
  ]
  return lines.map(([name, value]) => `<div><dt>${name}</dt><dd>${text(value)}</dd></div>`).join('')
}

function logSentence({
  chains,
  entries,
  head,
  verdicts,
  verifiedAt,
}: NonNullable<Overview['audit']>): string {
  const found = Object.entries(verdicts)
    .filter(([, count]) => count > 0)
    .map(([verdict, count]) => `${formatNumber(count)} ${verdict}`)
  const newest = head ? `; newest entry ${formatNumber(head.seq)}, checksum ${head.checksum}` : ''
  const verified = verifiedAt === null ? '' : `, last verified ${time(verifiedAt)}`
  return `${formatNumber(entries)} entries in ${formatNumber(chains)} ${chains === 1 ? 'chain' : 'chains'}${newest}. Verdict of the service: ${found.join(', ') || 'none yet'}${verified}`
}

function figures({ stats, users, security, compliance }: ReportData): string {
  const numbers: [string, number | undefined][] = [
    ['entries', stats?.totalEvents],
    ['people who acted', users?.totalUsers],
    ['sign-ins', security?.loginAttempts],
    ['failed sign-ins', security?.failedLogins],
    ['changes of permissions', security?.permissionChanges],
    ['reads of data', compliance?.dataAccess],
    ['changes of data', compliance?.dataChanges],
    ['exports', compliance?.exports],
  ]
  const shown = numbers.filter(([, count]) => count !== undefined)
  return `<section><h2>In numbers</h2><ul class="figures">${shown
    .map(([name, count]) => `<li><b>${formatNumber(count!)}</b> ${name}</li>`)
    .join('')}</ul></section>`
}

/** A chart of the largest, and all of it as a table: the same for people who cannot see the chart. */
function charted(title: string, bars: Bar[]): string {
  const shown = bars
    .filter(({ count }) => count > 0)
    .map((bar) => ({ ...bar, name: escapeToOneLine(bar.name) }))
  if (shown.length === 0) return `<section><h2>${title}</h2><p>Nothing in this period</p></section>`
  const rows = shown.slice(0, maxRows).map(({ name, count }) => [text(name), formatNumber(count)])
  const more = shown.length > maxRows ? `<p>and ${formatNumber(shown.length - maxRows)} more</p>` : ''
  return `<section><h2>${title}</h2><div aria-hidden="true">${barChart(shown.slice(0, maxBars))}</div>
<details><summary>As a table</summary>${table(['', 'Entries'], rows)}${more}</details></section>`
}

const entryTable = (title: string, entries: readonly AuditEntry[]): string =>
  entries.length === 0
    ? ''
    : `<section><h2>${title}</h2><div class="scroll">${table(
        ['Time', 'Who', 'Action', 'On', 'Result'],
        entries.map(({ timestamp, user, action, resource, result }) => [
          time(text(timestamp)),
          text(user.email ?? user.name),
          text(action),
          text(resource.name ?? resource.type),
          text(result),
        ]),
      )}</div></section>`

/** The cells are HTML. */
const table = (heads: string[], rows: string[][]): string =>
  `<table><thead><tr>${heads.map((head) => `<th scope="col">${head}</th>`).join('')}</tr></thead><tbody>${rows
    .map((cells) => `<tr>${cells.map((cell) => `<td>${cell}</td>`).join('')}</tr>`)
    .join('')}</tbody></table>`
