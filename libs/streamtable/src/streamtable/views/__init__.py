"""Views: read-only, local copies of whole tables that can be asked and watched."""
