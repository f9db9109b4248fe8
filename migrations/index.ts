import type { Migration } from '../src/storage/migrate.ts'
import * as foundation from './0001_foundation.ts'
import * as apiKeys from './0002_api_keys.ts'
import * as messages from './0003_messages.ts'
import * as people from './0004_people.ts'
import * as authentication from './0005_authentication.ts'
import * as roleLists from './0006_role_lists.ts'
import * as fleet from './0007_fleet.ts'
import * as writePath from './0008_write_path.ts'
import * as devices from './0009_devices.ts'
import * as groups from './0010_groups.ts'
import * as search from './0012_search.ts'
import * as speed from './0013_speed.ts'
import * as logs from './0014_logs.ts'
import * as auditReading from './0015_audit_reading.ts'
import * as oneAuditIndex from './0016_one_audit_index.ts'
import * as checkpoints from './0017_checkpoints.ts'
import * as retention from './0018_retention.ts'
import * as live from './0019_live.ts'
import * as logTails from './0020_log_tails.ts'
import * as linkByOrder from './0021_link_by_order.ts'
import * as tagsInRow from './0022_tags_in_row.ts'
import * as webhooks from './0023_webhooks.ts'
import * as sso from './0024_sso.ts'
import * as ssoSignIn from './0025_sso_sign_in.ts'
import * as trust from './0026_trust.ts'
import * as deliveryStates from './0027_delivery_states.ts'

/** In the order they are applied. A landed migration is never edited, renamed or moved. */
export const migrations: readonly Migration[] = [
  { name: '0001_foundation', up: foundation.up },
  { name: '0002_api_keys', up: apiKeys.up },
  { name: '0003_messages', up: messages.up },
  { name: '0004_people', up: people.up },
  { name: '0005_authentication', up: authentication.up },
  { name: '0006_role_lists', up: roleLists.up },
  { name: '0007_fleet', up: fleet.up },
  { name: '0008_write_path', up: writePath.up },
  { name: '0009_devices', up: devices.up },
  { name: '0010_groups', up: groups.up },
  { name: '0012_search', up: search.up },
  { name: '0013_speed', up: speed.up },
  { name: '0014_logs', up: logs.up },
  { name: '0015_audit_reading', up: auditReading.up },
  { name: '0016_one_audit_index', up: oneAuditIndex.up },
  { name: '0017_checkpoints', up: checkpoints.up },
  { name: '0018_retention', up: retention.up },
  { name: '0019_live', up: live.up },
  { name: '0020_log_tails', up: logTails.up },
  { name: '0021_link_by_order', up: linkByOrder.up },
  { name: '0022_tags_in_row', up: tagsInRow.up },
  { name: '0023_webhooks', up: webhooks.up },
  { name: '0024_sso', up: sso.up },
  { name: '0025_sso_sign_in', up: ssoSignIn.up },
  { name: '0026_trust', up: trust.up },
  { name: '0027_delivery_states', up: deliveryStates.up },
]
